//! Names and transforms of Hugging Face folders: `model.` or `model.language_model.` tensors in,
//! canonical tensors out.

use super::canonical::{Slot, Source, Transform, fit, slots, split_layer, translate};
use super::host::HostTensor;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Names outside the layers, after the model's prefix.
const MODEL: [(&str, &str); 2] = [("embed", "embed_tokens.weight"), ("norm", "norm.weight")];

/// Names inside a layer.
const LAYER: [(&str, &str); 27] = [
    ("attn_norm", "input_layernorm.weight"),
    ("ffn_norm", "post_attention_layernorm.weight"),
    ("attn.q", "self_attn.q_proj.weight"),
    ("attn.k", "self_attn.k_proj.weight"),
    ("attn.v", "self_attn.v_proj.weight"),
    ("attn.o", "self_attn.o_proj.weight"),
    ("attn.q_norm", "self_attn.q_norm.weight"),
    ("attn.k_norm", "self_attn.k_norm.weight"),
    ("delta.qkv", "linear_attn.in_proj_qkv.weight"),
    ("delta.z", "linear_attn.in_proj_z.weight"),
    ("delta.b", "linear_attn.in_proj_b.weight"),
    ("delta.a", "linear_attn.in_proj_a.weight"),
    ("delta.out", "linear_attn.out_proj.weight"),
    ("delta.neg_a", "linear_attn.A_log"),
    ("delta.dt_bias", "linear_attn.dt_bias"),
    ("delta.conv", "linear_attn.conv1d.weight"),
    ("delta.norm", "linear_attn.norm.weight"),
    ("ffn.gate", "mlp.gate_proj.weight"),
    ("ffn.up", "mlp.up_proj.weight"),
    ("ffn.down", "mlp.down_proj.weight"),
    ("moe.router", "mlp.gate.weight"),
    ("moe.experts.gate_up", "mlp.experts.gate_up_proj"),
    ("moe.experts.down", "mlp.experts.down_proj"),
    ("moe.shared.gate", "mlp.shared_expert.gate_proj.weight"),
    ("moe.shared.up", "mlp.shared_expert.up_proj.weight"),
    ("moe.shared.down", "mlp.shared_expert.down_proj.weight"),
    ("moe.shared_gate", "mlp.shared_expert_gate.weight"),
];

/// Names inside one expert of a checkpoint that does not stack them.
const EXPERT: [(&str, &str); 3] = [
    ("moe.experts.gate", "gate_proj.weight"),
    ("moe.experts.up", "up_proj.weight"),
    ("moe.experts.down", "down_proj.weight"),
];

/// Names of the MTP block beside its layer.
const MTP: [(&str, &str); 4] = [
    ("fc", "fc.weight"),
    ("embed_norm", "pre_fc_norm_embedding.weight"),
    ("hidden_norm", "pre_fc_norm_hidden.weight"),
    ("norm", "norm.weight"),
];

/// Where the parts of a model lie in this folder.
struct Names {
    model: &'static str,
    mtp: &'static str,
}

impl Names {
    fn of(source: &Source<'_>) -> Self {
        let nested = source.has_prefix("model.language_model.");
        let inner_mtp = source.has_prefix("model.mtp.");
        Self {
            model: if nested { "model.language_model." } else { "model." },
            mtp: if inner_mtp { "model.mtp." } else { "mtp." },
        }
    }

    /// Prefix of the layer that canonical names call `layers.3.` or `mtp.`.
    fn layer(&self, canonical: &str) -> String {
        match canonical {
            "mtp." => format!("{}layers.0.", self.mtp),
            layer => format!("{}{layer}", self.model),
        }
    }

    /// File name of a canonical tensor, experts stacked.
    fn tensor(&self, canonical: &str) -> String {
        match split_layer(canonical) {
            ("", "lm_head") => "lm_head.weight".to_owned(),
            ("", name) => format!("{}{}", self.model, translate(&MODEL, name)),
            ("mtp.", name) if MTP.iter().any(|(known, _)| *known == name) => {
                format!("{}{}", self.mtp, translate(&MTP, name))
            }
            (layer, name) => format!("{}{}", self.layer(layer), translate(&LAYER, name)),
        }
    }

    /// Prefix of the experts of a layer, before the expert's number.
    fn experts(&self, layer: &str) -> String {
        format!("{}mlp.experts.", self.layer(layer))
    }

    /// True if the experts of a layer are separate tensors.
    fn separate_experts(&self, source: &Source<'_>, layer: &str) -> bool {
        source.has_prefix(&format!("{}0.", self.experts(layer)))
    }
}

/// Canonical tensors of a folder. Sets `config.mtp` and `config.tied_embeddings` to what the tensors
/// say.
///
/// # Errors
/// [`Error::MissingTensor`], [`Error::Format`] for a wrong shape, a value that is not finite or an
/// unread tensor, [`Error::Unsupported`] for biases and other extras.
pub(crate) fn assemble(
    path: &Path,
    tensors: BTreeMap<String, HostTensor>,
    config: &mut ModelConfig,
) -> Result<BTreeMap<String, HostTensor>> {
    let mut source = Source::new(path, tensors);
    let names = Names::of(&source);
    config.mtp = config.family.is_hybrid() && source.has_prefix(names.mtp);
    config.tied_embeddings |= !source.has("lm_head.weight");
    let separate: Vec<String> = (0..config.layers.len())
        .map(|index| format!("layers.{index}."))
        .chain(["mtp.".to_owned()])
        .filter(|layer| names.separate_experts(&source, layer))
        .collect();
    let is_separate = |layer: &str| separate.iter().any(|known| known == layer);
    let mut canonical = BTreeMap::new();
    for slot in slots(config, &|layer| !is_separate(layer)) {
        let (layer, suffix) = split_layer(&slot.name);
        let expert = EXPERT.iter().find(|(name, _)| *name == suffix && is_separate(layer));
        let tensor = match expert {
            Some((_, file)) => stack(path, &mut source, &slot, &names.experts(layer), file)?,
            None => {
                let transform = transform(config, &slot.name);
                source.take_for(&slot, &names.tensor(&slot.name), transform)?
            }
        };
        canonical.insert(slot.name, tensor);
    }
    let tied = config.tied_embeddings;
    source.finish(|name| ignored(name) || (tied && name == "lm_head.weight"))?;
    Ok(canonical)
}

/// The hybrid family stores norm weights less 1 (but not that of the delta net output), and the
/// logarithm of a head's decay.
fn transform(config: &ModelConfig, name: &str) -> Transform {
    if name.ends_with(".neg_a") {
        Transform::NegExp
    } else if config.family.is_hybrid() && name.ends_with("norm") && !name.ends_with("delta.norm") {
        Transform::PlusOne
    } else {
        Transform::Keep
    }
}

/// Vision weights and the rotary buffers of old checkpoints.
fn ignored(name: &str) -> bool {
    name.starts_with("model.visual.")
        || name.starts_with("visual.")
        || name.ends_with("rotary_emb.inv_freq")
}

/// Experts that are separate tensors, copied behind each other.
fn stack(
    path: &Path,
    source: &mut Source<'_>,
    slot: &Slot,
    prefix: &str,
    file: &str,
) -> Result<HostTensor> {
    let (experts, shape) = slot.shape.split_first().map_or((0, &[][..]), |(n, rest)| (*n, rest));
    let mut bytes = Vec::new();
    let mut storage = None;
    for expert in 0..experts {
        let tensor = fit(path, source.take(&format!("{prefix}{expert}.{file}"))?, shape)?;
        let first = *storage.get_or_insert(tensor.storage);
        if tensor.storage != first {
            let reason = format!("is {}, expert 0 is {first}", tensor.storage);
            return Err(Error::format(path, tensor.name, reason));
        }
        if expert == 0 {
            bytes.reserve_exact(tensor.data.len().saturating_mul(experts));
        }
        bytes.extend_from_slice(tensor.data.as_slice());
    }
    let storage = storage.ok_or_else(|| {
        Error::format(path, format!("{prefix}*.{file}"), "a mixture layer has no experts")
    })?;
    HostTensor::new(format!("{prefix}*.{file}"), storage, slot.shape.clone(), bytes.into())
}

#[cfg(test)]
mod tests;
