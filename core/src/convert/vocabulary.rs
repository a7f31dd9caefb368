//! The tokenizer of a checkpoint as GGUF keys.

use crate::error::{Error, Result};
use crate::tokenizer::{BYTE_LEVEL_PATTERN, SpecialTokens, Tokenizer, pre_tokenizer_name};
use crate::weights::gguf::{GgufArray, GgufValue};
use crate::weights::{Checkpoint, GgufVocabulary, TokenizerSource};
use serde_json::{Map, Value};

/// Token types of the format.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
/// Keys of the tokens that end a reply, in the order in which they are used.
const ENDS: [&str; 3] = ["eos_token_id", "eot_token_id", "eom_token_id"];

/// Texts whose tokens must be the same from either source.
const PROBES: [&str; 6] = [
    "The quick brown fox, 1234567 times: don't stop!\n\n\tif (x >= 10) { return \"ok\"; }  ",
    "Größe, naïve café, Ελληνικά, Русский язык, עברית, हिन्दी, ภาษาไทย",
    "日本語の文章と中文句子，한국어 문장도。 ½ ² ①",
    "emoji 👩‍👩‍👧 🏳️‍🌈, zero\u{200b}width, combining e\u{301} and \u{1e69}",
    "a\r\nb\rc   d\u{a0}e\u{3000}f ___ ---- $%&/()=?",
    "<|im_start|>user\nHi<|im_end|>\n<think>\n</think><|begin_of_text|><|endoftext|></s>",
];

/// The `tokenizer.ggml.*` keys.
///
/// # Errors
/// [`Error::Unsupported`] for a tokenizer that the format cannot hold.
pub(super) fn keys(source: &Checkpoint, rows: usize) -> Result<Vec<(String, GgufValue)>> {
    let vocabulary = match &source.tokenizer {
        TokenizerSource::Gguf(vocabulary) => (**vocabulary).clone(),
        TokenizerSource::Json(text) => from_json(source, text, rows)?,
    };
    if vocabulary.eos.len() > ENDS.len() {
        let what = format!("{} tokens that end a reply in GGUF", vocabulary.eos.len());
        return Err(Error::unsupported(what, "the format has three"));
    }
    let mut keys = Vec::new();
    let mut put = |key: &str, value| keys.push((format!("tokenizer.ggml.{key}"), value));
    put("model", GgufValue::String(vocabulary.model));
    put("pre", GgufValue::String(vocabulary.pre));
    put("tokens", GgufValue::Array(GgufArray::String(vocabulary.tokens)));
    if !vocabulary.token_types.is_empty() {
        put("token_type", GgufValue::Array(GgufArray::I32(vocabulary.token_types)));
    }
    if !vocabulary.merges.is_empty() {
        put("merges", GgufValue::Array(GgufArray::String(vocabulary.merges)));
    }
    if !vocabulary.scores.is_empty() {
        put("scores", GgufValue::Array(GgufArray::F32(vocabulary.scores)));
    }
    for (key, id) in ENDS.into_iter().zip(vocabulary.eos) {
        put(key, GgufValue::U32(id));
    }
    let ids = [
        ("bos_token_id", vocabulary.bos),
        ("padding_token_id", vocabulary.pad),
        ("unknown_token_id", vocabulary.unknown),
    ];
    for (key, id) in ids {
        if let Some(id) = id {
            put(key, GgufValue::U32(id));
        }
    }
    let flags = [
        ("add_bos_token", vocabulary.add_bos),
        ("add_eos_token", vocabulary.add_eos),
        ("add_space_prefix", vocabulary.add_space_prefix),
    ];
    for (key, flag) in flags {
        if let Some(flag) = flag {
            put(key, GgufValue::Bool(flag));
        }
    }
    Ok(keys)
}

/// The vocabulary of a `tokenizer.json`: byte-level BPE with a pre-tokenizer that has a name.
fn from_json(source: &Checkpoint, text: &str, rows: usize) -> Result<GgufVocabulary> {
    let config = source.tokenizer_config.as_deref();
    // Checks the file; what follows reads fields that are there.
    let tokenizer = Tokenizer::from_source(&source.tokenizer, config)?;
    let fault = |field: &str, reason: &str| Error::format("tokenizer.json", field, reason);
    let file: Map<String, Value> =
        serde_json::from_str(text).map_err(|e| fault("json", &e.to_string()))?;
    let pre = file.get("pre_tokenizer").and_then(patterns);
    let Some(pre) = pre.as_deref().and_then(pre_tokenizer_name) else {
        let reason = "GGUF has no name for its pre-tokenizer that forge knows";
        return Err(Error::unsupported("this tokenizer.json in GGUF", reason));
    };
    let model = file.get("model").ok_or_else(|| fault("model", "missing"))?;
    let mut slots: Vec<Option<(String, i32)>> = vec![None; rows];
    let mut set = |id: Option<u64>, token: &str, kind: i32| {
        let slot = id.and_then(|id| slots.get_mut(usize::try_from(id).ok()?));
        let slot = slot.ok_or_else(|| fault("vocab", &format!("{token:?} has no row")))?;
        *slot = Some((token.to_owned(), kind));
        Ok::<_, Error>(())
    };
    for (token, id) in model.get("vocab").and_then(Value::as_object).into_iter().flatten() {
        set(id.as_u64(), token, NORMAL)?;
    }
    for token in file.get("added_tokens").and_then(Value::as_array).into_iter().flatten() {
        let special = token.get("special").and_then(Value::as_bool).unwrap_or(false);
        let content = token.get("content").and_then(Value::as_str).unwrap_or_default();
        let kind = if special { CONTROL } else { USER_DEFINED };
        set(token.get("id").and_then(Value::as_u64), content, kind)?;
    }
    let slots = slots.into_iter().enumerate();
    let (tokens, token_types) =
        slots.map(|(id, slot)| slot.unwrap_or_else(|| (format!("[PAD{id}]"), UNUSED))).unzip();
    let merges = model.get("merges").and_then(Value::as_array).into_iter().flatten();
    let merges = merges
        .map(|merge| match merge {
            Value::Array(pair) => {
                let halves: Vec<&str> = pair.iter().filter_map(Value::as_str).collect();
                halves.join(" ")
            }
            merge => merge.as_str().unwrap_or_default().to_owned(),
        })
        .collect();
    Ok(GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: pre.to_owned(),
        tokens,
        token_types,
        merges,
        bos: tokenizer.bos().map(|id| id.0),
        eos: tokenizer.stop_tokens(&source.generation).into_iter().map(|id| id.0).collect(),
        pad: pad(config).and_then(|text| tokenizer.id_of(&text)).map(|id| id.0),
        add_bos: Some(tokenizer.add_bos()),
        ..GgufVocabulary::default()
    })
}

/// `pad_token` of `tokenizer_config.json`: a text, or an object that holds one.
fn pad(config: Option<&str>) -> Option<String> {
    let config: Value = serde_json::from_str(config?).ok()?;
    let pad = config.get("pad_token")?;
    pad.as_str().or_else(|| pad.get("content")?.as_str()).map(str::to_owned)
}

/// The patterns by which a pre-tokenizer cuts, if it does nothing else.
fn patterns(pre_tokenizer: &Value) -> Option<Vec<&str>> {
    let kind = pre_tokenizer.get("type")?.as_str()?;
    let flag = |name: &str| pre_tokenizer.get(name).and_then(Value::as_bool);
    match kind {
        "Sequence" => {
            let parts = pre_tokenizer.get("pretokenizers")?.as_array()?;
            let parts: Option<Vec<_>> = parts.iter().map(patterns).collect();
            Some(parts?.concat())
        }
        "Split" => {
            let plain =
                pre_tokenizer.get("behavior")? == "Isolated" && flag("invert") != Some(true);
            let pattern = pre_tokenizer.get("pattern")?.get("Regex")?.as_str()?;
            plain.then(|| vec![pattern])
        }
        "Digits" => (flag("individual_digits") == Some(true)).then(|| vec![r"\p{N}"]),
        "ByteLevel" if flag("add_prefix_space") == Some(true) => None,
        "ByteLevel" if flag("use_regex") == Some(false) => Some(Vec::new()),
        "ByteLevel" => Some(vec![BYTE_LEVEL_PATTERN]),
        _ => None,
    }
}

/// Fails if the tokenizer of the new file makes other tokens than that of the source.
///
/// # Errors
/// [`Error::Format`] with the text at fault.
pub(super) fn compare(source: &Checkpoint, written: &Checkpoint) -> Result<()> {
    let open = |c: &Checkpoint| Tokenizer::from_source(&c.tokenizer, c.tokenizer_config.as_deref());
    let (old, new) = (open(source)?, open(written)?);
    let fault = |reason: String| Err(Error::format(&written.path, "tokenizer", reason));
    let ends = |tokenizer: &Tokenizer, checkpoint: &Checkpoint| {
        let mut ids = tokenizer.stop_tokens(&checkpoint.generation);
        ids.sort_unstable();
        (ids, tokenizer.add_bos().then(|| tokenizer.bos()).flatten())
    };
    if ends(&old, source) != ends(&new, written) {
        return fault("other tokens begin and end a sequence than in the source".to_owned());
    }
    let template = source.chat_template.as_deref().unwrap_or_default();
    for probe in PROBES.into_iter().chain([template]) {
        for special in [SpecialTokens::Parse, SpecialTokens::AsText] {
            // A text that the source cannot encode proves nothing.
            let Ok(expected) = old.encode(probe, special) else { continue };
            if new.encode(probe, special).ok().as_ref() != Some(&expected) {
                return fault(format!("{probe:?} has other tokens than in the source"));
            }
            if old.decode(&expected, false) != new.decode(&expected, false) {
                return fault(format!("the tokens of {probe:?} decode differently"));
            }
        }
    }
    Ok(())
}
