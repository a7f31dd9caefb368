//! Sampling and stop defaults of a checkpoint.

use super::GenerationDefaults;
use super::gguf::GgufFile;
use crate::config::json::{Fields, parse_object};
use crate::error::{Error, Result};
use std::path::Path;

/// Defaults of a Hugging Face folder: `generation_config.json` where it speaks, `config.json` for
/// the special tokens else. Each file is its path and text.
///
/// # Errors
/// [`Error::Format`] naming file, field and value.
pub(super) fn from_hf(
    config: (&Path, &str),
    generation: Option<(&Path, &str)>,
) -> Result<GenerationDefaults> {
    let mut defaults = GenerationDefaults::default();
    if let Some((path, text)) = generation {
        let object = parse_object(path, text)?;
        let fields = Fields::new(path, [&object]);
        let number = |key: &str| Ok::<_, Error>(fields.number(key)?.map(|value| value as f32));
        defaults.temperature = number("temperature")?;
        if fields.flag("do_sample")? == Some(false) {
            defaults.temperature = Some(0.0);
        }
        defaults.top_k = top_k(path, "top_k", fields.number("top_k")?)?;
        defaults.top_p = number("top_p")?;
        defaults.min_p = number("min_p")?;
        defaults.repetition_penalty = number("repetition_penalty")?;
        defaults.eos = fields.token_ids("eos_token_id")?;
        defaults.bos = fields.token_ids("bos_token_id")?.first().copied();
        check(path, &defaults)?;
    }
    let (path, text) = config;
    let root = parse_object(path, text)?;
    let nested = root.get("text_config").and_then(|value| value.as_object());
    let fields = Fields::new(path, nested.into_iter().chain([&root]));
    if defaults.eos.is_empty() {
        defaults.eos = fields.token_ids("eos_token_id")?;
    }
    if defaults.bos.is_none() {
        defaults.bos = fields.token_ids("bos_token_id")?.first().copied();
    }
    Ok(defaults)
}

/// Defaults of a GGUF file: `general.sampling.*`, and the special tokens.
///
/// # Errors
/// [`Error::Format`] naming file, key and value.
pub(super) fn from_gguf(file: &GgufFile) -> Result<GenerationDefaults> {
    let number = |key: &str| {
        let key = format!("general.sampling.{key}");
        let Some(value) = file.get(&key) else { return Ok(None) };
        let number = value.as_f32().or_else(|| value.as_i32().map(|v| v as f32));
        number
            .map(Some)
            .ok_or_else(|| Error::format(&file.path, key, format!("is {value}, expected a number")))
    };
    let top_k_value = number("top_k")?.map(f64::from);
    let defaults = GenerationDefaults {
        temperature: number("temp")?,
        top_k: top_k(&file.path, "general.sampling.top_k", top_k_value)?,
        top_p: number("top_p")?,
        min_p: number("min_p")?,
        repetition_penalty: number("penalty_repeat")?,
        eos: gguf_eos(file)?,
        bos: file.optional_u32("tokenizer.ggml.bos_token_id")?,
    };
    check(&file.path, &defaults)?;
    Ok(defaults)
}

/// Tokens that end a generation: `eos`, `eot`, `eom`, without duplicates.
///
/// # Errors
/// [`Error::Format`] naming the key.
pub(super) fn gguf_eos(file: &GgufFile) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for key in ["eos", "eot", "eom"] {
        let id = file.optional_u32(&format!("tokenizer.ggml.{key}_token_id"))?;
        ids.extend(id.filter(|id| !ids.contains(id)));
    }
    Ok(ids)
}

/// A candidate count; zero and below are off.
fn top_k(path: &Path, field: &str, value: Option<f64>) -> Result<Option<u32>> {
    match value {
        Some(k) if k.fract() != 0.0 || k > f64::from(u32::MAX) => {
            Err(Error::format(path, field, format!("{k} is not a count")))
        }
        value => Ok(value.map(|k| k.max(0.0) as u32)),
    }
}

fn check(path: &Path, defaults: &GenerationDefaults) -> Result<()> {
    let range = |field: &str, value: Option<f32>, low: f32, high: f32| match value {
        Some(v) if !(low..=high).contains(&v) => {
            Err(Error::format(path, field, format!("{v} is outside {low} to {high}")))
        }
        _ => Ok(()),
    };
    range("temperature", defaults.temperature, 0.0, 100.0)?;
    range("top_p", defaults.top_p, 0.0, 1.0)?;
    range("min_p", defaults.min_p, 0.0, 1.0)?;
    range("repetition_penalty", defaults.repetition_penalty, f32::MIN_POSITIVE, 100.0)
}
