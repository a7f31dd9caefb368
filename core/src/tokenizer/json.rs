//! A tokenizer from a `tokenizer.json`.
//!
//! The components are taken from a list of known ones, and what they need is checked before the
//! `tokenizers` crate sees it: some of its readers panic on a malformed file.

use super::added::{AddedToken, AddedTokens};
use super::bpe::BpeSource;
use super::table::{Kind, Spelling, TokenTable};
use super::{SpecialIds, Tokenizer};
use crate::error::{Error, Result};
use crate::ids::TokenId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Name for messages.
const FILE: &str = "tokenizer.json";
/// Name of the companion for messages.
const CONFIG: &str = "tokenizer_config.json";

const NORMALIZERS: &[&str] = &[
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Prepend",
    "Replace",
    "Sequence",
    "Strip",
    "StripAccents",
];
const PRE_TOKENIZERS: &[&str] = &[
    "ByteLevel",
    "Digits",
    "Metaspace",
    "Punctuation",
    "Sequence",
    "Split",
    "Whitespace",
    "WhitespaceSplit",
];

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    model: Map<String, Value>,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

/// The parts of `tokenizer_config.json` that matter here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    bos_token: Option<SpecialText>,
    eos_token: Option<SpecialText>,
    add_bos_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum SpecialText {
    Plain(String),
    Token { content: String },
}

impl SpecialText {
    fn into_text(self) -> String {
        match self {
            Self::Plain(text) | Self::Token { content: text } => text,
        }
    }
}

/// Builds the tokenizer of `text`, with the special tokens of `config`.
///
/// # Errors
/// [`Error::Unsupported`] for components that forge lacks, [`Error::Format`] for a malformed file.
pub(super) fn load(text: &str, config: Option<&str>) -> Result<Tokenizer> {
    let file: File =
        serde_json::from_str(text).map_err(|e| Error::format(FILE, "json", e.to_string()))?;
    let config: Config = match config {
        Some(text) => {
            serde_json::from_str(text).map_err(|e| Error::format(CONFIG, "json", e.to_string()))?
        }
        None => Config::default(),
    };
    let (spelling, spaces) = decoding(file.decoder.as_ref())?;
    let mut source = read_model(file.model)?;
    let (table, added) = read_tokens(&source, file.added_tokens, spelling, spaces)?;
    let ids: HashMap<&str, TokenId> = added.iter().map(|t| (t.content.as_str(), t.id)).collect();
    let id_of = |text: &str| {
        ids.get(text).copied().or_else(|| source.vocab.get(text).copied().map(TokenId))
    };
    let special = special_ids(config, file.post_processor.as_ref(), id_of)?;

    for token in added.iter().filter(|token| token.special) {
        if source.unknown.as_ref() != Some(&token.content) {
            source.vocab.remove(&token.content);
        }
    }
    let model = source.build(&added)?;
    let normalizer = component(file.normalizer, "normalizer", NORMALIZERS)?;
    Ok(Tokenizer {
        added: AddedTokens::new(added, normalizer.as_ref())?,
        special,
        table: table.into(),
        model,
        normalizer,
        pre_tokenizer: component(file.pre_tokenizer, "pre_tokenizer", PRE_TOKENIZERS)?,
    })
}

fn read_model(mut model: Map<String, Value>) -> Result<BpeSource> {
    let kind = model.get("type").and_then(Value::as_str).unwrap_or("BPE");
    if kind != "BPE" {
        let reason = "forge reads BPE models; a GGUF file of this model may work";
        return Err(Error::unsupported(format!("tokenizer.json model {kind:?}"), reason));
    }
    for affix in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model.get(affix).and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
            let reason = "BPE models of language models have no affixes";
            return Err(Error::unsupported(format!("tokenizer.json model.{affix}"), reason));
        }
    }
    let flag = |name: &str| model.get(name).and_then(Value::as_bool).unwrap_or(false);
    let mut source = BpeSource {
        file: FILE,
        unknown: model.get("unk_token").and_then(Value::as_str).map(str::to_owned),
        fuse_unknown: flag("fuse_unk"),
        byte_fallback: flag("byte_fallback"),
        ignore_merges: flag("ignore_merges"),
        ..BpeSource::default()
    };
    let Some(Value::Object(vocab)) = model.remove("vocab") else {
        return Err(Error::format(FILE, "model.vocab", "missing, or not an object"));
    };
    for (token, id) in vocab {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
            Error::format(FILE, format!("model.vocab[{token:?}]"), format!("{id} is not an id"))
        })?;
        source.vocab.insert(token, id);
    }
    let Some(Value::Array(merges)) = model.remove("merges") else {
        return Err(Error::format(FILE, "model.merges", "missing, or not an array"));
    };
    source.merges.reserve(merges.len());
    for (index, merge) in merges.into_iter().enumerate() {
        source.merges.push(read_merge(merge).ok_or_else(|| {
            Error::format(FILE, format!("merges[{index}]"), "not a pair of tokens")
        })?);
    }
    Ok(source)
}

/// A merge is `["a", "b"]` or, in older files, `"a b"`.
fn read_merge(merge: Value) -> Option<(String, String)> {
    match merge {
        Value::Array(pair) => {
            let [Value::String(left), Value::String(right)] = <[Value; 2]>::try_from(pair).ok()?
            else {
                return None;
            };
            Some((left, right))
        }
        Value::String(text) => {
            let (left, right) = text.split_once(' ')?;
            (!right.contains(' ')).then(|| (left.to_owned(), right.to_owned()))
        }
        _ => None,
    }
}

fn read_tokens(
    source: &BpeSource,
    added: Vec<Added>,
    spelling: Spelling,
    spaces: usize,
) -> Result<(TokenTable, Vec<AddedToken>)> {
    let mut table = TokenTable::with_holes(source.vocab.len() + added.len());
    table.leading_spaces_removed = spaces;
    for (token, &id) in &source.vocab {
        table.set(id, &spelling.decode(token), Kind::Text, FILE, "model.vocab")?;
    }
    let mut tokens = Vec::with_capacity(added.len());
    for (index, token) in added.into_iter().enumerate() {
        let kind = if token.special { Kind::Special } else { Kind::Text };
        let bytes = match spelling {
            Spelling::ByteLevel => token.content.clone().into_bytes(),
            Spelling::Pieces(_) => spelling.decode(&token.content),
        };
        table.set(token.id, &bytes, kind, FILE, &format!("added_tokens[{index}]"))?;
        tokens.push(AddedToken {
            id: TokenId(token.id),
            content: token.content,
            special: token.special,
            normalized: token.normalized,
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
        });
    }
    Ok((table, tokens))
}

/// How tokens spell bytes, and how many leading spaces decoding removes.
fn decoding(decoder: Option<&Value>) -> Result<(Spelling, usize)> {
    let unsupported = |found: &str| {
        Error::unsupported(
            format!("tokenizer.json decoder {found}"),
            "forge reads ByteLevel, Metaspace, and Sequence of Replace, ByteFallback, Fuse, Strip",
        )
    };
    let Some(decoder) = decoder else { return Err(unsupported("null")) };
    match kind_of(decoder) {
        Some("ByteLevel") => Ok((Spelling::ByteLevel, 0)),
        Some("Metaspace") => {
            let space = decoder.get("replacement").and_then(Value::as_str).unwrap_or("▁");
            let scheme = decoder.get("prepend_scheme").and_then(Value::as_str);
            let space = single_char(space).ok_or_else(|| unsupported(&decoder.to_string()))?;
            Ok((Spelling::Pieces(space), usize::from(scheme != Some("never"))))
        }
        Some("Sequence") => {
            let steps = decoder.get("decoders").and_then(Value::as_array);
            let steps = steps.ok_or_else(|| unsupported("Sequence without decoders"))?;
            sequence_decoding(steps).ok_or_else(|| unsupported(&decoder.to_string()))
        }
        found => Err(unsupported(found.unwrap_or("without a type"))),
    }
}

fn sequence_decoding(steps: &[Value]) -> Option<(Spelling, usize)> {
    let mut spelling = None;
    let mut spaces = 0;
    for step in steps {
        match kind_of(step)? {
            "ByteLevel" => spelling = Some(Spelling::ByteLevel),
            "Replace" if step.get("content")?.as_str()? == " " => {
                let pattern = step.get("pattern")?.get("String")?.as_str()?;
                spelling = Some(Spelling::Pieces(single_char(pattern)?));
            }
            "ByteFallback" | "Fuse" => {}
            "Strip" if step.get("content")?.as_str()? == " " && step.get("stop")? == 0 => {
                spaces = usize::try_from(step.get("start")?.as_u64()?).ok()?;
            }
            _ => return None,
        }
    }
    Some((spelling?, spaces))
}

fn single_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn kind_of(component: &Value) -> Option<&str> {
    component.get("type").and_then(Value::as_str)
}

/// Reads a component after checking that it and its parts are among `known`.
fn component<T: DeserializeOwned>(
    value: Option<Value>,
    field: &str,
    known: &[&str],
) -> Result<Option<T>> {
    let Some(value) = value else { return Ok(None) };
    check_component(&value, field, known)?;
    let component =
        serde_json::from_value(value).map_err(|e| Error::format(FILE, field, e.to_string()))?;
    Ok(Some(component))
}

fn check_component(value: &Value, field: &str, known: &[&str]) -> Result<()> {
    let kind = kind_of(value).ok_or_else(|| Error::format(FILE, field, "has no type"))?;
    if !known.contains(&kind) {
        let reason = format!("known ones are {}", known.join(", "));
        return Err(Error::unsupported(format!("tokenizer.json {field} {kind:?}"), reason));
    }
    for list in ["normalizers", "pretokenizers"] {
        for part in value.get(list).and_then(Value::as_array).into_iter().flatten() {
            check_component(part, field, known)?;
        }
    }
    Ok(())
}

fn special_ids(
    config: Config,
    post_processor: Option<&Value>,
    id_of: impl Fn(&str) -> Option<TokenId>,
) -> Result<SpecialIds> {
    let template_bos = post_processor.and_then(first_of_template).map(str::to_owned);
    let configured_bos = config.bos_token.map(SpecialText::into_text);
    let bos_text = configured_bos.or_else(|| template_bos.clone());
    let eos_text = config.eos_token.map(SpecialText::into_text);
    // A token that the vocabulary lacks could silently never be produced or never stop a reply.
    let resolve = |field: &str, text: &Option<String>| match text {
        Some(text) => id_of(text).map(Some).ok_or_else(|| {
            Error::format(CONFIG, field, format!("{text:?} is not in the vocabulary"))
        }),
        None => Ok(None),
    };
    let bos = resolve("bos_token", &bos_text)?;
    let eos = resolve("eos_token", &eos_text)?.into_iter().collect();
    let template_adds = template_bos.is_some() && template_bos == bos_text;
    let add_bos = bos.is_some() && config.add_bos_token.unwrap_or(template_adds);
    Ok(SpecialIds { bos, eos, bos_text, eos_text, add_bos })
}

/// The special token that the post-processor puts first, if it does.
fn first_of_template(post_processor: &Value) -> Option<&str> {
    match kind_of(post_processor)? {
        "TemplateProcessing" => {
            let first = post_processor.get("single")?.as_array()?.first()?;
            first.get("SpecialToken")?.get("id")?.as_str()
        }
        "Sequence" => {
            post_processor.get("processors")?.as_array()?.iter().find_map(first_of_template)
        }
        _ => None,
    }
}
