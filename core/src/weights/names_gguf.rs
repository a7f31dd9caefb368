//! Names of GGUF files: `blk.N.*` tensors in, canonical tensors out. Norms, decays and convolution
//! taps are final in this format; nothing is transformed.

use super::canonical::{ROPE_FREQS, Slot, Source, Transform, slots, split_layer, translate};
use super::host::HostTensor;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Names outside the layers.
const MODEL: [(&str, &str); 4] = [
    ("embed", "token_embd.weight"),
    ("lm_head", "output.weight"),
    ("norm", "output_norm.weight"),
    (ROPE_FREQS, "rope_freqs.weight"),
];

/// Names inside a block.
const LAYER: [(&str, &str); 28] = [
    ("attn_norm", "attn_norm.weight"),
    ("attn.q", "attn_q.weight"),
    ("attn.k", "attn_k.weight"),
    ("attn.v", "attn_v.weight"),
    ("attn.o", "attn_output.weight"),
    ("attn.q_norm", "attn_q_norm.weight"),
    ("attn.k_norm", "attn_k_norm.weight"),
    ("delta.qkv", "attn_qkv.weight"),
    ("delta.z", "attn_gate.weight"),
    ("delta.b", "ssm_beta.weight"),
    ("delta.a", "ssm_alpha.weight"),
    ("delta.out", "ssm_out.weight"),
    ("delta.neg_a", "ssm_a"),
    ("delta.dt_bias", "ssm_dt.bias"),
    ("delta.conv", "ssm_conv1d.weight"),
    ("delta.norm", "ssm_norm.weight"),
    ("ffn.gate", "ffn_gate.weight"),
    ("ffn.up", "ffn_up.weight"),
    ("ffn.down", "ffn_down.weight"),
    ("moe.router", "ffn_gate_inp.weight"),
    ("moe.experts.gate_up", "ffn_gate_up_exps.weight"),
    ("moe.experts.gate", "ffn_gate_exps.weight"),
    ("moe.experts.up", "ffn_up_exps.weight"),
    ("moe.experts.down", "ffn_down_exps.weight"),
    ("moe.shared.gate", "ffn_gate_shexp.weight"),
    ("moe.shared.up", "ffn_up_shexp.weight"),
    ("moe.shared.down", "ffn_down_shexp.weight"),
    ("moe.shared_gate", "ffn_gate_inp_shexp.weight"),
];

/// Names of the MTP block beside its layer.
const MTP: [(&str, &str); 4] = [
    ("fc", "nextn.eh_proj.weight"),
    ("embed_norm", "nextn.enorm.weight"),
    ("hidden_norm", "nextn.hnorm.weight"),
    ("norm", "nextn.shared_head_norm.weight"),
];

/// Block prefix of the layer that canonical names call `layers.3.` or `mtp.`.
fn block(config: &ModelConfig, layer: &str) -> String {
    match layer.strip_prefix("layers.") {
        Some(index) => format!("blk.{index}"),
        None => format!("blk.{}.", config.layers.len()),
    }
}

/// File name of a canonical tensor.
fn file_name(config: &ModelConfig, canonical: &str) -> String {
    match split_layer(canonical) {
        ("", name) => translate(&MODEL, name).to_owned(),
        ("mtp.", name) if MTP.iter().any(|(known, _)| *known == name) => {
            format!("{}{}", block(config, "mtp."), translate(&MTP, name))
        }
        // The norm before the feed-forward is named after its neighbour in the hybrid family.
        (layer, "ffn_norm") => {
            let name = if config.family.is_hybrid() { "post_attention_norm" } else { "ffn_norm" };
            format!("{}{name}.weight", block(config, layer))
        }
        (layer, name) => format!("{}{}", block(config, layer), translate(&LAYER, name)),
    }
}

/// A tensor of a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Canonical name.
    pub canonical: String,
    /// Name in the file.
    pub name: String,
    /// Shape in the file, slowest dimension first.
    pub shape: Vec<usize>,
}

/// All tensors that a GGUF file of a model with `config` holds, but for the optional divisors of
/// rotary frequencies; gate and up rows of experts are tensors of their own.
pub fn gguf_tensors(config: &ModelConfig) -> Vec<GgufTensor> {
    let slots = slots(config, &|_| false).into_iter();
    slots
        .map(|Slot { name, shape }| GgufTensor {
            name: file_name(config, &name),
            // The gate of the shared expert is a vector in this format.
            shape: if shape.first() == Some(&1) { shape[1..].to_vec() } else { shape },
            canonical: name,
        })
        .collect()
}

/// Canonical tensors of a file. Sets `config.mtp` and `config.tied_embeddings` to what the tensors
/// say.
///
/// # Errors
/// [`Error::MissingTensor`], [`Error::Format`] for a wrong shape, a value that is not finite or an
/// unread tensor, [`Error::Unsupported`] for biases, dedicated draft embeddings and other extras.
pub(super) fn assemble(
    path: &Path,
    tensors: BTreeMap<String, HostTensor>,
    config: &mut ModelConfig,
) -> Result<BTreeMap<String, HostTensor>> {
    let mut source = Source::new(path, tensors);
    config.mtp = config.family.is_hybrid() && source.has_prefix(&block(config, "mtp."));
    config.tied_embeddings = !source.has(translate(&MODEL, "lm_head"));
    if config.mtp && !source.has_prefix("blk.0.") {
        return Err(Error::unsupported(
            format!("{} as a model", path.display()),
            "it holds only the draft head of one; open the file with the main layers",
        ));
    }
    let mut wanted = slots(config, &|layer| {
        source.has(&file_name(config, &format!("{layer}moe.experts.gate_up")))
    });
    if source.has(&file_name(config, ROPE_FREQS)) {
        wanted.push(Slot::rope_freqs(config));
    }
    let mut canonical = BTreeMap::new();
    for slot in wanted {
        let tensor = source.take_for(&slot, &file_name(config, &slot.name), Transform::Keep)?;
        canonical.insert(slot.name, tensor);
    }
    source.finish(ignored)?;
    Ok(canonical)
}

/// Rotary buffers that old converters copied.
fn ignored(name: &str) -> bool {
    name.ends_with(".attn_rot_embd.weight")
        || name.ends_with("rotary_emb.inv_freq")
        || (name.starts_with("blk.") && name.ends_with(".rope_freqs.weight"))
}

#[cfg(test)]
mod tests;
