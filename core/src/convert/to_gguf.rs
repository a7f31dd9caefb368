//! A checkpoint in the shape that GGUF asks for: names, the order of heads and rotary pairs, experts
//! in two tensors, metadata.

use super::container::Contents;
use super::types::Choice;
use super::view::View;
use super::vocabulary;
use crate::config::{DeltaNetConfig, Family, ModelConfig, RopeConfig, RopeScaling};
use crate::error::{Error, Result};
use crate::model::frequencies;
use crate::ops::{HeadMap, RopePairing};
use crate::weights::canonical::{ROPE_FREQS, split_layer};
use crate::weights::gguf::GgufValue;
use crate::weights::host::HostTensor;
use crate::weights::quant::StorageType;
use crate::weights::{Checkpoint, GenerationDefaults, GgufTensor, gguf_tensors};
use std::collections::BTreeMap;

/// Version of the block layouts that the format's quantised types have.
const QUANTIZATION_VERSION: u32 = 2;

/// The configuration as the format has it, and its tensors.
///
/// # Errors
/// [`Error::MissingTensor`], [`Error::Unsupported`] for rotary divisors together with a scaling.
pub(super) fn views(source: &Checkpoint, old: &ModelConfig) -> Result<(ModelConfig, Vec<View>)> {
    let mut config = old.clone();
    if let Some(delta) = &mut config.delta_net {
        delta.head_map = HeadMap::Modulo;
    }
    if config.family == Family::Llama {
        config.attention.rope.pairing = RopePairing::Adjacent;
    }
    let mut extra = source.tensors.get(ROPE_FREQS).cloned();
    if let RopeScaling::Llama3 { .. } = config.attention.rope.scaling {
        if extra.is_some() {
            let reason = "rotary scaling and divisors cannot both become the tensor rope_freqs";
            return Err(Error::unsupported("llama3 scaling with divisors", reason));
        }
        extra = Some(divisors(&config.attention.rope)?);
        config.attention.rope.scaling = RopeScaling::None;
    }
    // The format keeps these as 32-bit numbers.
    config.attention.rope.theta = f64::from(config.attention.rope.theta as f32);
    if let RopeScaling::Linear { factor } = &mut config.attention.rope.scaling {
        *factor = f64::from(*factor as f32);
    }
    let mut views = Vec::new();
    for wanted in gguf_tensors(&config) {
        views.push(view(source, old, wanted)?);
    }
    if let Some(tensor) = extra {
        let name = "rope_freqs.weight".to_owned();
        views.push(View { name, ..View::whole(ROPE_FREQS, &tensor) });
    }
    Ok((config, views))
}

/// What divides the rotary frequencies so that they become the scaled ones.
fn divisors(rope: &RopeConfig) -> Result<HostTensor> {
    let plain = RopeConfig { scaling: RopeScaling::None, ..rope.clone() };
    let pairs = frequencies(&plain, None).into_iter().zip(frequencies(rope, None));
    let divisors: Vec<f32> = pairs.map(|(plain, scaled)| plain / scaled).collect();
    HostTensor::from_f32(ROPE_FREQS, vec![divisors.len()], &divisors)
}

fn view(source: &Checkpoint, config: &ModelConfig, wanted: GgufTensor) -> Result<View> {
    let GgufTensor { canonical, name, shape } = wanted;
    let mut view = match source.tensors.get(&canonical) {
        Some(tensor) => View::whole(&canonical, tensor),
        None => expert_half(source, &canonical)?,
    };
    let (_, rest) = split_layer(&canonical);
    if let Some(delta) = &config.delta_net
        && delta.head_map == HeadMap::Divide
        && let Some(part) = rest.strip_prefix("delta.")
    {
        order_heads(&mut view, part, delta);
    }
    let rope = &config.attention.rope;
    if config.family == Family::Llama && rope.pairing == RopePairing::Half {
        let heads = match rest {
            "attn.q" => Some(config.attention.query_heads),
            "attn.k" => Some(config.attention.kv_heads),
            _ => None,
        };
        view.rows = heads.map(|heads| pair_rows(heads, config.attention.head_dim));
    }
    Ok(View { name, canonical, shape, ..view })
}

/// Gate or up rows of experts that the source keeps together.
fn expert_half(source: &Checkpoint, canonical: &str) -> Result<View> {
    let second = canonical.ends_with(".up");
    let stem = canonical.trim_end_matches(".up").trim_end_matches(".gate");
    let both = format!("{stem}.gate_up");
    let found = source.tensors.get(&both).filter(|tensor| tensor.shape.len() == 3);
    let Some(tensor) = found else {
        return Err(Error::MissingTensor { path: source.path.clone(), name: canonical.to_owned() });
    };
    let (experts, rows) = (tensor.shape[0], tensor.shape[1] / 2);
    let start = |expert: usize| 2 * rows * expert + if second { rows } else { 0 };
    let rows = (0..experts).flat_map(|expert| start(expert)..start(expert) + rows);
    let rows = rows.map(|row| row as u32).collect();
    Ok(View { rows: Some(rows), ..View::whole(&both, tensor) })
}

/// Value heads from groups by key head to tiles over all key heads: head `i * key_heads + k` was
/// head `k * r + i`.
fn order_heads(view: &mut View, part: &str, delta: &DeltaNetConfig) {
    let group = delta.value_heads / delta.key_heads.max(1);
    if group <= 1 {
        return;
    }
    let source_head = |head: usize| head % delta.key_heads * group + head / delta.key_heads;
    let whole_heads = |first: usize, size: usize| -> Vec<u32> {
        let kept = 0..first;
        let heads = (0..delta.value_heads).map(source_head);
        let moved = heads.flat_map(|head| first + head * size..first + (head + 1) * size);
        kept.chain(moved).map(|at| at as u32).collect()
    };
    let keys = 2 * delta.key_heads * delta.key_dim;
    match part {
        "qkv" | "conv" => view.rows = Some(whole_heads(keys, delta.value_dim)),
        "z" => view.rows = Some(whole_heads(0, delta.value_dim)),
        "a" | "b" => view.rows = Some(whole_heads(0, 1)),
        "neg_a" | "dt_bias" => view.columns = Some(whole_heads(0, 1)),
        "out" => view.columns = Some(whole_heads(0, delta.value_dim)),
        _ => {}
    }
}

/// Rows of heads from two halves to neighbouring pairs.
fn pair_rows(heads: usize, dim: usize) -> Vec<u32> {
    let row = |at: usize| at / dim * dim + at % 2 * (dim / 2) + at % dim / 2;
    (0..heads * dim).map(|at| row(at) as u32).collect()
}

/// All keys of the file.
///
/// # Errors
/// Those of [`ModelConfig::to_gguf`] and of the tokenizer.
pub(super) fn metadata(
    source: &Checkpoint,
    contents: &Contents,
    choices: &[Choice],
    calibration: Option<&str>,
) -> Result<Vec<(String, GgufValue)>> {
    let mut keys = contents.config.to_gguf()?;
    let mut put = |key: &str, value: GgufValue| keys.push((key.to_owned(), value));
    let text = |text: &str| GgufValue::String(text.to_owned());
    if contents.config.family == Family::Llama {
        let size = u32::try_from(contents.config.vocab_size).unwrap_or(u32::MAX);
        put("llama.vocab_size", GgufValue::U32(size));
    }
    put("general.type", text("model"));
    put("general.name", text(&source.name));
    put("general.quantization_version", GgufValue::U32(QUANTIZATION_VERSION));
    put("general.file_type", GgufValue::U32(file_type(contents, choices)));
    if let Some(name) = calibration {
        put("quantize.imatrix.file", text(name));
    }
    let GenerationDefaults { temperature, top_k, top_p, min_p, repetition_penalty, .. } =
        source.generation;
    let numbers = [
        ("temp", temperature),
        ("top_p", top_p),
        ("min_p", min_p),
        ("penalty_repeat", repetition_penalty),
    ];
    for (key, value) in numbers {
        if let Some(value) = value {
            put(&format!("general.sampling.{key}"), GgufValue::F32(value));
        }
    }
    if let Some(k) = top_k.and_then(|k| i32::try_from(k).ok()) {
        put("general.sampling.top_k", GgufValue::I32(k));
    }
    if let Some(template) = &source.chat_template {
        put("tokenizer.chat_template", text(template));
    }
    keys.extend(vocabulary::keys(source, contents.config.vocab_size)?);
    Ok(keys)
}

/// `general.file_type`: a number that other engines show as the name of the type of most bytes.
fn file_type(contents: &Contents, choices: &[Choice]) -> u32 {
    let mut values: BTreeMap<StorageType, usize> = BTreeMap::new();
    for (view, choice) in contents.views.iter().zip(choices) {
        *values.entry(choice.storage).or_default() += view.total_rows() * view.row_values();
    }
    let most = values.into_iter().max_by_key(|(_, values)| *values);
    match most.map_or(StorageType::F32, |(storage, _)| storage) {
        StorageType::F32 => 0,
        StorageType::F16 => 1,
        StorageType::Q4_0 => 2,
        StorageType::Q4_1 => 3,
        StorageType::Q8_0 => 7,
        StorageType::Q5_0 => 8,
        StorageType::Q5_1 => 9,
        StorageType::Q2_K => 10,
        StorageType::Q3_K => 12,
        StorageType::Q4_K => 15,
        StorageType::Q5_K => 17,
        StorageType::Q6_K => 18,
        StorageType::Iq2Xxs => 19,
        StorageType::Iq2Xs => 20,
        StorageType::Iq3Xxs => 23,
        StorageType::Iq4Nl => 25,
        StorageType::Iq4Xs => 30,
        StorageType::Bf16 => 32,
        StorageType::Mxfp4 => 38,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_a_head_become_neighbours() {
        assert_eq!(pair_rows(2, 4), [0, 2, 1, 3, 4, 6, 5, 7]);
    }

    #[test]
    fn heads_are_tiled() {
        let delta = DeltaNetConfig {
            key_heads: 2,
            value_heads: 6,
            key_dim: 1,
            value_dim: 2,
            conv_kernel: 4,
            head_map: HeadMap::Divide,
        };
        let tensor = HostTensor::from_f32("t", vec![16, 1], &[0.0; 16]).unwrap();
        let mut view = View::whole("t", &tensor);
        order_heads(&mut view, "a", &delta);
        assert_eq!(view.rows, Some(vec![0, 3, 1, 4, 2, 5]));
        order_heads(&mut view, "qkv", &delta);
        assert_eq!(view.rows.unwrap()[..8], [0, 1, 2, 3, 4, 5, 10, 11]);
    }

    #[test]
    fn divisors_make_the_scaled_frequencies() {
        let rope = RopeConfig {
            dims: 64,
            theta: 500_000.0,
            pairing: RopePairing::Half,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_positions: 8192,
            },
        };
        let own = divisors(&rope).unwrap().to_f32().unwrap();
        let plain = RopeConfig { scaling: RopeScaling::None, ..rope.clone() };
        for (a, b) in frequencies(&plain, Some(&own)).into_iter().zip(frequencies(&rope, None)) {
            assert!((a - b).abs() <= 1e-6 * b, "{a} {b}");
        }
    }
}
