//! Added tokens: literal texts that are cut out before the regular vocabulary is consulted.

use crate::error::{Error, Result};
use crate::ids::TokenId;
use aho_corasick::{AhoCorasick, MatchKind};
use std::collections::HashMap;
use std::ops::Range;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// A token that is matched as literal text.
#[derive(Clone, Debug)]
pub(super) struct AddedToken {
    /// Its id.
    pub(super) id: TokenId,
    /// Its text.
    pub(super) content: String,
    /// A control token.
    pub(super) special: bool,
    /// Matched in the normalised text instead of the raw one.
    pub(super) normalized: bool,
    /// Matched only where no letter or digit touches it.
    pub(super) single_word: bool,
    /// Takes the white space before it.
    pub(super) lstrip: bool,
    /// Takes the white space after it.
    pub(super) rstrip: bool,
}

impl AddedToken {
    /// A token matched exactly as it is written.
    pub(super) fn literal(id: TokenId, content: String, special: bool) -> Self {
        Self {
            id,
            content,
            special,
            normalized: false,
            single_word: false,
            lstrip: false,
            rstrip: false,
        }
    }
}

/// Which added tokens a pass over a text recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recognised {
    /// All of them.
    All,
    /// Those that are not control tokens.
    NotSpecial,
}

/// A piece of a text: `Some` where a token was found.
pub(super) type Piece = (Range<usize>, Option<TokenId>);

/// The added tokens of a vocabulary, ready for matching.
#[derive(Debug)]
pub(super) struct AddedTokens {
    tokens: Vec<AddedToken>,
    by_content: HashMap<String, TokenId>,
    raw: [Matcher; 2],
    normalized: [Matcher; 2],
}

#[derive(Debug)]
struct Matcher {
    automaton: Option<AhoCorasick>,
    /// Index into the tokens, by pattern.
    indices: Vec<usize>,
}

impl AddedTokens {
    /// Prepares `tokens`; those that are matched in normalised text are normalised first.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the tokens cannot be compiled into an automaton.
    pub(super) fn new(
        mut tokens: Vec<AddedToken>,
        normalizer: Option<&NormalizerWrapper>,
    ) -> Result<Self> {
        tokens.retain(|token| !token.content.is_empty());
        let by_content = tokens.iter().map(|t| (t.content.clone(), t.id)).collect();
        let mut patterns = Vec::with_capacity(tokens.len());
        for token in &tokens {
            patterns.push(match normalizer {
                Some(normalizer) if token.normalized => {
                    let mut content = NormalizedString::from(token.content.as_str());
                    normalizer
                        .normalize(&mut content)
                        .map_err(|e| Error::invalid("added_tokens", e.to_string()))?;
                    content.get().to_owned()
                }
                _ => token.content.clone(),
            });
        }
        let matcher = |normalized: bool, recognised: Recognised| {
            let wanted = |token: &AddedToken| {
                token.normalized == normalized && (recognised == Recognised::All || !token.special)
            };
            let indices =
                (0..tokens.len()).filter(|&i| tokens.get(i).is_some_and(wanted)).collect();
            Matcher::new(indices, &patterns)
        };
        let raw = [matcher(false, Recognised::All)?, matcher(false, Recognised::NotSpecial)?];
        let normalized = [matcher(true, Recognised::All)?, matcher(true, Recognised::NotSpecial)?];
        Ok(Self { tokens, by_content, raw, normalized })
    }

    /// The id of the token spelt `content`.
    pub(super) fn id_of(&self, content: &str) -> Option<TokenId> {
        self.by_content.get(content).copied()
    }

    /// Texts of the control tokens.
    pub(super) fn special_texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter(|token| token.special).map(|token| token.content.as_str())
    }

    /// Cuts the tokens of raw text out of `text`.
    pub(super) fn split_raw(&self, text: &str, recognised: Recognised) -> Vec<Piece> {
        self.raw[usize::from(recognised == Recognised::NotSpecial)].split(text, &self.tokens)
    }

    /// Cuts the tokens of normalised text out of `text`.
    pub(super) fn split_normalized(&self, text: &str, recognised: Recognised) -> Vec<Piece> {
        self.normalized[usize::from(recognised == Recognised::NotSpecial)].split(text, &self.tokens)
    }
}

impl Matcher {
    fn new(indices: Vec<usize>, patterns: &[String]) -> Result<Self> {
        let chosen: Vec<&str> =
            indices.iter().filter_map(|&i| patterns.get(i)).map(String::as_str).collect();
        let automaton = match chosen.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(&chosen)
                    .map_err(|e| Error::invalid("added_tokens", e.to_string()))?,
            ),
        };
        Ok(Self { automaton, indices })
    }

    fn split(&self, text: &str, tokens: &[AddedToken]) -> Vec<Piece> {
        let Some(automaton) = &self.automaton else { return vec![(0..text.len(), None)] };
        let mut pieces = Vec::new();
        let mut done = 0;
        for found in automaton.find_iter(text) {
            let token = self.indices.get(found.pattern().as_usize()).and_then(|&i| tokens.get(i));
            let Some(token) = token else { continue };
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            // White space that the previous token took may reach into this match's own start.
            if found.start() < done
                || token.single_word && (ends_in_word(before) || starts_with_word(after))
            {
                continue;
            }
            let mut range = found.range();
            if token.lstrip {
                range.start = before.trim_end().len().max(done);
            }
            if token.rstrip {
                range.end += after.len() - after.trim_start().len();
            }
            if done < range.start {
                pieces.push((done..range.start, None));
            }
            done = range.end;
            pieces.push((range, Some(token.id)));
        }
        if done < text.len() {
            pieces.push((done..text.len(), None));
        }
        pieces
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_in_word(text: &str) -> bool {
    text.chars().next_back().is_some_and(is_word)
}

fn starts_with_word(text: &str) -> bool {
    text.chars().next().is_some_and(is_word)
}
