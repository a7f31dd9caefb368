//! Text to token ids and back, from a `tokenizer.json` or a GGUF vocabulary.
//!
//! Both sources become the same [`Tokenizer`]. Normalisation, pre-tokenisation and byte-pair
//! merging are the `tokenizers` crate's; added tokens, decoding and the special ids are handled
//! here, because a server needs distinctions that a general tokenizer does not make: control
//! tokens inside user text must stay text ([`SpecialTokens::AsText`]), the beginning-of-sequence
//! token must never appear twice, and a stream must never break a character.

mod added;
mod bpe;
mod gguf;
mod json;
mod pieces;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use gguf::{BYTE_LEVEL_PATTERN, pre_tokenizer_name};
pub use stream::StreamDecoder;

use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::weights::{GenerationDefaults, TokenizerSource};
use added::{AddedTokens, Piece, Recognised};
use std::sync::Arc;
use table::{Kind, TokenTable};
use tokenizers::models::bpe::BPE;
use tokenizers::tokenizer::normalizer::Range as NormalizedRange;
use tokenizers::{
    Model, NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Token,
};

/// What becomes of control tokens that a text spells out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// They become their ids: for rendered templates and trusted prompts.
    Parse,
    /// They are ordinary text: for anything that a user or a tool wrote. Added tokens that are
    /// not control tokens (`<think>`, `<tool_call>`) are still recognised.
    AsText,
}

/// Text to token ids and back.
#[derive(Debug)]
pub struct Tokenizer {
    model: BPE,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    added: AddedTokens,
    table: Arc<TokenTable>,
    special: SpecialIds,
}

/// The tokens that begin and end a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SpecialIds {
    bos: Option<TokenId>,
    eos: Vec<TokenId>,
    bos_text: Option<String>,
    eos_text: Option<String>,
    add_bos: bool,
}

/// How control tokens are treated inside one encoding.
#[derive(Clone, Copy)]
enum Mode {
    Parse,
    AsText,
    /// As `Parse`, but an occurrence that holds this character is text; the character is removed.
    Guarded(char),
}

impl Tokenizer {
    /// Builds the tokenizer of a checkpoint. `tokenizer_config` is the text of
    /// `tokenizer_config.json`; a GGUF vocabulary has no use for it.
    ///
    /// Qwen vocabularies normalise to NFC from either source, as their `tokenizer.json` says.
    /// SentencePiece byte tokens decode as bytes; where a run of them is not UTF-8, each invalid
    /// sequence becomes one U+FFFD.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model, pre-tokenizer or decoder that forge lacks, naming it;
    /// [`Error::Format`] for a malformed source, naming the field and index.
    pub fn from_source(source: &TokenizerSource, tokenizer_config: Option<&str>) -> Result<Self> {
        match source {
            TokenizerSource::Json(text) => json::load(text, tokenizer_config),
            TokenizerSource::Gguf(vocabulary) => {
                gguf::load(vocabulary, gguf::Normalization::AsTokenizerJson)
            }
        }
    }

    /// Token ids of `text`. Nothing is added at either end; see [`encode_prompt`](Self::encode_prompt).
    ///
    /// # Errors
    /// [`Error::Invalid`] when the text holds a character that the vocabulary cannot express.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<TokenId>> {
        self.encode_in(
            text,
            match special {
                SpecialTokens::Parse => Mode::Parse,
                SpecialTokens::AsText => Mode::AsText,
            },
        )
    }

    /// Token ids of a whole prompt: [`encode`](Self::encode), begun with [`bos`](Self::bos) if
    /// [`add_bos`](Self::add_bos) and the text does not begin with it already.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str, special: SpecialTokens) -> Result<Vec<TokenId>> {
        let ids = self.encode(text, special)?;
        Ok(self.with_bos(ids))
    }

    /// Token ids of a rendered conversation in which the control tokens that people or tools
    /// wrote carry `guard` (see [`Rendered`](crate::chat::Rendered)); those are text, the
    /// template's own are control tokens. Begins as [`encode_prompt`](Self::encode_prompt) does.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_guarded(&self, text: &str, guard: Option<char>) -> Result<Vec<TokenId>> {
        let ids = self.encode_in(text, guard.map_or(Mode::Parse, Mode::Guarded))?;
        Ok(self.with_bos(ids))
    }

    /// Text of `ids`. Invalid UTF-8 and ids without a token become U+FFFD; with `skip_special`
    /// control tokens are left out.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> String {
        let mut decoder = self.stream_decoder(skip_special);
        let mut text = String::new();
        for &id in ids {
            decoder.push_to(id, &mut text);
        }
        text.extend(decoder.finish());
        text
    }

    /// A decoder for the ids of one reply as they arrive. It may outlive the tokenizer.
    pub fn stream_decoder(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.table), skip_special)
    }

    /// The bytes that `id` stands for, perhaps a fragment of a character; `None` for an id
    /// without a token.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.table.bytes(id)
    }

    /// [`token_bytes`](Self::token_bytes) as text, fragments as U+FFFD.
    pub fn token_text(&self, id: TokenId) -> Option<String> {
        self.table.bytes(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Number of ids: one more than the largest id with a token (for GGUF, the listed rows). The
    /// model's head may have more rows.
    pub fn vocab_size(&self) -> usize {
        self.table.len()
    }

    /// Whether `id` is a control token.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.table.kind(id) == Kind::Special
    }

    /// The id of `token` as the vocabulary spells it (`<|im_end|>`, `Ġthe`).
    pub fn id_of(&self, token: &str) -> Option<TokenId> {
        self.added.id_of(token).or_else(|| self.model.token_to_id(token).map(TokenId))
    }

    /// Texts of the control tokens.
    pub fn special_texts(&self) -> impl Iterator<Item = &str> {
        self.added.special_texts()
    }

    /// Whether a prompt begins with [`bos`](Self::bos).
    pub fn add_bos(&self) -> bool {
        self.special.add_bos
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<TokenId> {
        self.special.bos
    }

    /// Tokens that end a sequence, by the tokenizer's own files.
    pub fn eos(&self) -> &[TokenId] {
        &self.special.eos
    }

    /// [`eos`](Self::eos) and those that the generation defaults name: any of them ends a reply.
    pub fn stop_tokens(&self, generation: &GenerationDefaults) -> Vec<TokenId> {
        let mut stops = self.special.eos.clone();
        for id in generation.eos.iter().copied().map(TokenId) {
            if !stops.contains(&id) {
                stops.push(id);
            }
        }
        stops
    }

    /// `bos_token` for the chat template.
    pub fn bos_text(&self) -> Option<&str> {
        self.special.bos_text.as_deref()
    }

    /// `eos_token` for the chat template.
    pub fn eos_text(&self) -> Option<&str> {
        self.special.eos_text.as_deref()
    }

    fn with_bos(&self, mut ids: Vec<TokenId>) -> Vec<TokenId> {
        match self.special.bos {
            Some(bos) if self.special.add_bos && ids.first() != Some(&bos) => ids.insert(0, bos),
            _ => {}
        }
        ids
    }

    fn encode_in(&self, text: &str, mode: Mode) -> Result<Vec<TokenId>> {
        let pieces =
            self.tokenize(text, mode).map_err(|e| Error::invalid("text", e.to_string()))?;
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        let ids = splits.iter().filter_map(|(_, _, tokens)| tokens.as_ref()).flatten();
        Ok(ids.map(|token| TokenId(token.id)).collect())
    }

    fn tokenize(&self, text: &str, mode: Mode) -> tokenizers::Result<PreTokenizedString> {
        let recognised = match mode {
            Mode::Parse | Mode::Guarded(_) => Recognised::All,
            Mode::AsText => Recognised::NotSpecial,
        };
        let mut pieces = PreTokenizedString::from(text);
        pieces.split(|_, text| cut(&text, &self.added.split_raw(text.get(), recognised)))?;
        pieces.split(|_, mut text| {
            if let Some(normalizer) = &self.normalizer {
                normalizer.normalize(&mut text)?;
            }
            cut(&text, &self.added.split_normalized(text.get(), recognised))
        })?;
        if let Mode::Guarded(guard) = mode {
            // Only now, when no token is looked for any more, may the guarded ones close up.
            pieces.normalize(|text| {
                text.filter(|c| c != guard);
                Ok(())
            })?;
        }
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|text| self.model.tokenize(text.get()))?;
        Ok(pieces)
    }
}

/// A part of the text, with its token if it is one.
type Part = (NormalizedString, Option<Vec<Token>>);

/// Cuts `text` at the found tokens.
fn cut(text: &NormalizedString, pieces: &[Piece]) -> tokenizers::Result<Vec<Part>> {
    let mut parts = Vec::with_capacity(pieces.len());
    for (range, id) in pieces {
        let part = text
            .slice(NormalizedRange::Normalized(range.clone()))
            .ok_or_else(|| format!("cannot cut bytes {range:?} out of the text"))?;
        let token = id.map(|id| vec![Token::new(id.0, String::new(), (0, range.len()))]);
        parts.push((part, token));
    }
    Ok(parts)
}
