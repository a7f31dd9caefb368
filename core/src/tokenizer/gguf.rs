//! A tokenizer from the vocabulary of a GGUF file.

use super::added::{AddedToken, AddedTokens};
use super::bpe::BpeSource;
use super::pieces;
use super::table::{Kind, Spelling, TokenTable};
use super::{SpecialIds, Tokenizer};
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::weights::GgufVocabulary;
use tokenizers::models::bpe::Vocab;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

/// Name for messages.
const FILE: &str = "tokenizer.ggml";

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// What a `tokenizer.ggml.pre` name stands for.
#[derive(Debug)]
struct PreTokenizer {
    name: &'static str,
    /// Each cuts what the one before it left.
    patterns: &'static [&'static str],
    /// The tokenizer.json of these models normalises to NFC.
    nfc: bool,
    ignore_merges: bool,
    /// Value of `add_bos_token` where the file is silent.
    add_bos: bool,
}

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        name: "qwen35",
        patterns: &[QWEN35],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        name: "qwen2",
        patterns: &[QWEN2],
        nfc: true,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        name: "llama-bpe",
        patterns: &[LLAMA3],
        nfc: false,
        ignore_merges: true,
        add_bos: true,
    },
    PreTokenizer {
        name: "gpt-2",
        patterns: &[GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        name: "smollm",
        patterns: &[r"\p{N}", GPT2],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
    PreTokenizer {
        name: "default",
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        nfc: false,
        ignore_merges: false,
        add_bos: false,
    },
];

/// Name of the pre-tokenizer that cuts by these patterns, one after the other.
pub(crate) fn pre_tokenizer_name(patterns: &[&str]) -> Option<&'static str> {
    PRE_TOKENIZERS.iter().find(|pre| pre.patterns == patterns).map(|pre| pre.name)
}

/// The pattern that a byte-level pre-tokenizer brings along.
pub(crate) const BYTE_LEVEL_PATTERN: &str = GPT2;

/// Whether the text of Qwen vocabularies is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Normalization {
    /// As the `tokenizer.json` of the model does it.
    AsTokenizerJson,
    /// Never: what tools that know only the GGUF file do.
    #[cfg_attr(not(test), expect(dead_code, reason = "the reference ids were made this way"))]
    Never,
}

/// Builds the tokenizer of `vocabulary`.
///
/// # Errors
/// [`Error::Unsupported`] for an unknown model or pre-tokenizer, [`Error::Format`] for a
/// vocabulary that contradicts itself.
pub(super) fn load(vocabulary: &GgufVocabulary, normalization: Normalization) -> Result<Tokenizer> {
    match vocabulary.model.as_str() {
        "gpt2" => byte_level(vocabulary, normalization),
        "llama" => sentence_pieces(vocabulary),
        other => Err(Error::unsupported(
            format!("tokenizer.ggml.model {other:?}"),
            "forge reads byte-level BPE (gpt2) and SentencePiece BPE (llama) vocabularies",
        )),
    }
}

fn byte_level(vocabulary: &GgufVocabulary, normalization: Normalization) -> Result<Tokenizer> {
    let pre = PRE_TOKENIZERS.iter().find(|pre| pre.name == vocabulary.pre).ok_or_else(|| {
        let known: Vec<&str> = PRE_TOKENIZERS.iter().map(|pre| pre.name).collect();
        Error::unsupported(
            format!("tokenizer.ggml.pre {:?}", vocabulary.pre),
            format!("known pre-tokenizers are {}", known.join(", ")),
        )
    })?;
    let Tokens { table, plain, added } = read_tokens(vocabulary, Spelling::ByteLevel)?;
    let source = BpeSource {
        file: FILE,
        vocab: plain,
        merges: read_merges(&vocabulary.merges)?,
        ignore_merges: pre.ignore_merges,
        ..BpeSource::default()
    };
    let model = source.build(&added)?;

    let normalizer = (pre.nfc && normalization == Normalization::AsTokenizerJson)
        .then(|| NormalizerWrapper::from(NFC));
    Ok(Tokenizer {
        added: AddedTokens::new(added, normalizer.as_ref())?,
        special: special_ids(vocabulary, pre.add_bos, &table)?,
        table: table.into(),
        model,
        normalizer,
        pre_tokenizer: Some(pre_tokenizer(pre)?),
    })
}

/// A SentencePiece vocabulary as the model's `tokenizer.json` would have it. A space is put before
/// each stretch of text and removed at the start of what is decoded, unless the file says
/// `add_space_prefix = false`.
fn sentence_pieces(vocabulary: &GgufVocabulary) -> Result<Tokenizer> {
    let prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let spelling = Spelling::Pieces(pieces::SPACE);
    let Tokens { mut table, plain, added } = read_tokens(vocabulary, spelling)?;
    table.leading_spaces_removed = usize::from(prefix);
    let unknown = vocabulary.unknown.and_then(|id| vocabulary.tokens.get(id as usize));
    let source = BpeSource {
        file: FILE,
        merges: pieces::merges(vocabulary, &plain, FILE)?,
        unknown: unknown.filter(|token| plain.contains_key(*token)).cloned(),
        fuse_unknown: true,
        byte_fallback: true,
        vocab: plain,
        ignore_merges: false,
    };
    let model = source.build(&added)?;
    let normalizer = pieces::normalizer(prefix)?;
    Ok(Tokenizer {
        added: AddedTokens::new(added, Some(&normalizer))?,
        special: special_ids(vocabulary, true, &table)?,
        table: table.into(),
        model,
        normalizer: Some(normalizer),
        pre_tokenizer: None,
    })
}

/// Token list of a file, sorted by use.
struct Tokens {
    table: TokenTable,
    plain: Vocab,
    added: Vec<AddedToken>,
}

fn read_tokens(vocabulary: &GgufVocabulary, spelling: Spelling) -> Result<Tokens> {
    let (tokens, types) = (&vocabulary.tokens, &vocabulary.token_types);
    if tokens.is_empty() {
        return Err(Error::format(FILE, "tokens", "the list is empty"));
    }
    if !types.is_empty() && types.len() != tokens.len() {
        let reason = format!("{} types for {} tokens", types.len(), tokens.len());
        return Err(Error::format(FILE, "token_type", reason));
    }
    let mut table = TokenTable::with_holes(tokens.len());
    let mut plain = Vocab::with_capacity(tokens.len());
    let mut added = Vec::new();
    let kinds = types.iter().copied().chain(std::iter::repeat(1));
    for ((id, token), kind) in (0u32..).zip(tokens).zip(kinds) {
        let field = "tokens";
        match kind {
            1 | 2 | 6 => {
                table.set(id, &spelling.decode(token), Kind::Text, FILE, field)?;
                plain.insert(token.clone(), id);
            }
            3 | 4 => {
                let special = kind == 3;
                let kind = if special { Kind::Special } else { Kind::Text };
                table.set(id, token.as_bytes(), kind, FILE, field)?;
                added.push(AddedToken::literal(TokenId(id), token.clone(), special));
            }
            // Unused rows stay holes, as in a tokenizer.json, which does not list them.
            5 => {}
            other => {
                let field = format!("token_type[{id}]");
                return Err(Error::format(FILE, field, format!("unknown type {other}")));
            }
        }
    }
    Ok(Tokens { table, plain, added })
}

fn read_merges(merges: &[String]) -> Result<Vec<(String, String)>> {
    let mut pairs = Vec::with_capacity(merges.len());
    for (index, merge) in merges.iter().enumerate() {
        let pair = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '));
        let Some((left, right)) = pair else {
            let reason = format!("{merge:?} is not two tokens with one space between them");
            return Err(Error::format(FILE, format!("merges[{index}]"), reason));
        };
        pairs.push((left.to_owned(), right.to_owned()));
    }
    Ok(pairs)
}

fn special_ids(
    vocabulary: &GgufVocabulary,
    add_bos: bool,
    table: &TokenTable,
) -> Result<SpecialIds> {
    let check = |field: &str, id: u32| {
        let known = (id as usize) < table.len();
        let reason = || format!("id {id} is outside the vocabulary of {} tokens", table.len());
        if known { Ok(TokenId(id)) } else { Err(Error::format(FILE, field, reason())) }
    };
    let bos = vocabulary.bos.map(|id| check("bos_token_id", id)).transpose()?;
    let mut eos: Vec<TokenId> = Vec::new();
    for &id in &vocabulary.eos {
        let id = check("eos_token_id", id)?;
        if !eos.contains(&id) {
            eos.push(id);
        }
    }
    let text = |id: TokenId| table.bytes(id).map(|b| String::from_utf8_lossy(b).into_owned());
    Ok(SpecialIds {
        bos,
        bos_text: bos.and_then(text),
        eos_text: eos.first().copied().and_then(text),
        eos,
        add_bos: bos.is_some() && vocabulary.add_bos.unwrap_or(add_bos),
    })
}

fn pre_tokenizer(pre: &PreTokenizer) -> Result<PreTokenizerWrapper> {
    let mut steps = Vec::with_capacity(pre.patterns.len() + 1);
    for pattern in pre.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
            .map_err(|e| Error::invalid("tokenizer.ggml.pre", e.to_string()))?;
        steps.push(PreTokenizerWrapper::from(split));
    }
    steps.push(PreTokenizerWrapper::from(ByteLevel::new(false, false, false)));
    Ok(PreTokenizerWrapper::from(Sequence::new(steps)))
}
