//! [`ModelConfig`] from the `config.json` of a Hugging Face folder. Absent fields take the defaults
//! of the transformers configuration classes; the sizes that those classes always write are required.

use super::json::{Fields, parse_object};
use super::{
    AttentionConfig, DeltaNetConfig, Family, FeedForwardConfig, LayerKind, ModelConfig, RopeConfig,
    RopeScaling, check,
};
use crate::error::{Error, Result};
use crate::ops::{HeadMap, RopePairing};
use std::path::Path;

/// Model types that [`ModelConfig::from_hf`] reads.
const MODEL_TYPES: [(&str, Family); 7] = [
    ("qwen3_5", Family::HybridDense),
    ("qwen3_5_text", Family::HybridDense),
    ("qwen3_5_moe", Family::HybridMoe),
    ("qwen3_5_moe_text", Family::HybridMoe),
    ("qwen3", Family::Qwen3),
    ("llama", Family::Llama),
    ("mistral", Family::Llama),
];

impl ModelConfig {
    /// Reads `config.json`: text hyper-parameters at top level or under `text_config`. `mtp` is
    /// false; whether the block is there is for the tensors to say.
    ///
    /// # Errors
    /// [`Error::Format`] naming field and value, [`Error::Unsupported`] for a model type or feature
    /// that forge does not have.
    pub fn from_hf(path: &Path, text: &str) -> Result<Self> {
        let root = parse_object(path, text)?;
        let top = Fields::new(path, [&root]);
        let nested = top.object("text_config")?;
        let fields = Fields::new(path, nested.into_iter().chain([&root]));
        let family = family(&top)?;
        if nested.is_some() {
            let inner = self::family(&fields)?;
            if inner != family {
                return Err(Error::format(
                    path,
                    "text_config.model_type",
                    format!("family {inner} inside a model of family {family}"),
                ));
            }
        }
        let mistral = fields.text("model_type")? == Some("mistral");
        refuse_features(&fields)?;
        let layers = layers(&fields, family)?;
        refuse_window(&fields, family, mistral, layers.len())?;
        // The outer flag rules in transformers: the tied pair belongs to the outer model.
        let tied = match top.flag("tie_word_embeddings")? {
            Some(tied) => tied,
            None => fields.flag("tie_word_embeddings")?.unwrap_or(false),
        };
        let config = Self {
            family,
            vocab_size: fields.require_size("vocab_size")?,
            hidden_size: fields.require_size("hidden_size")?,
            layers,
            rms_norm_eps: fields.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            tied_embeddings: tied,
            attention: attention(&fields, family, mistral)?,
            delta_net: if family.is_hybrid() { Some(delta_net(&fields)?) } else { None },
            feed_forward: feed_forward(&fields, family)?,
            mtp: false,
            max_positions: max_positions(&fields, family, mistral)?,
        };
        config.check(path)?;
        Ok(config)
    }
}

/// Family of the innermost `model_type`.
fn family(fields: &Fields<'_>) -> Result<Family> {
    let name = fields
        .text("model_type")?
        .ok_or_else(|| Error::format(fields.path(), "model_type", "the field is missing"))?;
    MODEL_TYPES.iter().find(|(known, _)| *known == name).map(|(_, family)| *family).ok_or_else(
        || {
            let known: Vec<_> = MODEL_TYPES.iter().map(|(known, _)| *known).collect();
            Error::unsupported(
                format!("model type {name}"),
                format!("{} needs one of {}", fields.path().display(), known.join(", ")),
            )
        },
    )
}

fn unsupported(fields: &Fields<'_>, what: String, reason: &str) -> Error {
    Error::unsupported(format!("{what} ({})", fields.path().display()), reason)
}

/// Features that change the graph and that forge does not have.
fn refuse_features(fields: &Fields<'_>) -> Result<()> {
    for key in ["attention_bias", "mlp_bias", "mtp_use_dedicated_embeddings"] {
        if fields.flag(key)? == Some(true) {
            return Err(unsupported(fields, format!("{key} true"), "no supported model sets it"));
        }
    }
    for key in ["hidden_act", "output_gate_type"] {
        if let Some(name) = fields.text(key)?
            && !matches!(name, "silu" | "swish")
        {
            return Err(unsupported(fields, format!("{key} {name}"), "only silu is"));
        }
    }
    if let Some(count) = fields.size("mtp_num_hidden_layers")?
        && count > 1
    {
        let what = format!("mtp_num_hidden_layers {count}");
        return Err(unsupported(fields, what, "a draft head has one block"));
    }
    if let Some(method) = fields.get("quantization_config") {
        let name = method.get("quant_method").and_then(|v| v.as_str()).unwrap_or("of unknown kind");
        return Err(unsupported(
            fields,
            format!("quantization_config {name}"),
            "use the unquantised checkpoint or a GGUF file",
        ));
    }
    if let Some(list) = fields.get("mlp_only_layers")
        && list.as_array().is_none_or(|list| !list.is_empty())
    {
        let what = format!("mlp_only_layers {}", super::json::brief(list));
        return Err(unsupported(fields, what, "every layer of a mixture model is routed"));
    }
    Ok(())
}

/// A sliding window that would hide any position of the model's context.
fn refuse_window(fields: &Fields<'_>, family: Family, mistral: bool, layers: usize) -> Result<()> {
    let used = match family {
        Family::Qwen3 => {
            fields.flag("use_sliding_window")?.unwrap_or(false)
                && fields.size("max_window_layers")?.unwrap_or(28) < layers
        }
        Family::Llama => mistral,
        Family::HybridDense | Family::HybridMoe => false,
    };
    let window = match fields.size("sliding_window")? {
        None if fields.has("sliding_window") => return Ok(()),
        window => window.unwrap_or(4096),
    };
    if used && window < max_positions(fields, family, mistral)? {
        let what = format!("sliding_window {window}");
        return Err(unsupported(fields, what, "attention here always sees the whole context"));
    }
    Ok(())
}

fn max_positions(fields: &Fields<'_>, family: Family, mistral: bool) -> Result<usize> {
    let default = match family {
        Family::Llama if mistral => 131_072,
        Family::Llama => 2048,
        Family::HybridDense | Family::HybridMoe | Family::Qwen3 => 32_768,
    };
    Ok(fields.size("max_position_embeddings")?.unwrap_or(default))
}

fn layers(fields: &Fields<'_>, family: Family) -> Result<Vec<LayerKind>> {
    let path = fields.path();
    let count =
        check::layer_count(path, "num_hidden_layers", fields.require_size("num_hidden_layers")?)?;
    let Some(types) = fields.get("layer_types") else {
        if !family.is_hybrid() {
            return Ok(vec![LayerKind::Attention; count]);
        }
        let interval = fields.size("full_attention_interval")?.unwrap_or(4);
        return interval_layers(path, "full_attention_interval", count, interval);
    };
    let types =
        types.as_array().ok_or_else(|| fields.wrong("layer_types", types, "a list of strings"))?;
    if types.len() != count {
        let reason = format!("{} entries for {count} layers", types.len());
        return Err(Error::format(path, "layer_types", reason));
    }
    let kind = |value: &serde_json::Value| match value.as_str() {
        Some("full_attention") => Ok(LayerKind::Attention),
        Some("linear_attention") => Ok(LayerKind::DeltaNet),
        Some(other) => Err(unsupported(
            fields,
            format!("layer type {other}"),
            "layers are full_attention or linear_attention",
        )),
        None => Err(fields.wrong("layer_types", value, "a string")),
    };
    types.iter().map(kind).collect()
}

/// Attention in every `interval`-th layer, delta nets between.
pub(super) fn interval_layers(
    path: &Path,
    field: &str,
    count: usize,
    interval: usize,
) -> Result<Vec<LayerKind>> {
    if interval == 0 {
        return Err(Error::format(path, field, "0 is not an interval"));
    }
    let kind = |layer: usize| {
        if (layer + 1).is_multiple_of(interval) {
            LayerKind::Attention
        } else {
            LayerKind::DeltaNet
        }
    };
    Ok((0..count).map(kind).collect())
}

fn attention(fields: &Fields<'_>, family: Family, mistral: bool) -> Result<AttentionConfig> {
    let query_heads = fields.require_size("num_attention_heads")?;
    let default_kv = match family {
        Family::HybridDense => 4,
        Family::HybridMoe => 2,
        Family::Qwen3 => 32,
        Family::Llama if mistral => 8,
        Family::Llama => query_heads,
    };
    // A null field means one key/value head per query head in every class.
    let kv_heads = match fields.size("num_key_value_heads")? {
        None if fields.has("num_key_value_heads") => query_heads,
        kv_heads => kv_heads.unwrap_or(default_kv),
    };
    let head_dim = match fields.size("head_dim")? {
        Some(head_dim) => head_dim,
        None if family.is_hybrid() => 256,
        None if family == Family::Qwen3 => 128,
        None => shared_head_dim(fields, query_heads)?,
    };
    Ok(AttentionConfig {
        query_heads,
        kv_heads,
        head_dim,
        gated: family.is_hybrid() && fields.flag("attn_output_gate")?.unwrap_or(true),
        qk_norm: family != Family::Llama,
        rope: rope(fields, family, head_dim)?,
    })
}

/// Head size of models that split the residual stream among their heads.
fn shared_head_dim(fields: &Fields<'_>, query_heads: usize) -> Result<usize> {
    let hidden = fields.require_size("hidden_size")?;
    if query_heads == 0 || hidden % query_heads != 0 {
        return Err(Error::format(
            fields.path(),
            "num_attention_heads",
            format!("hidden_size {hidden} does not divide into {query_heads} heads"),
        ));
    }
    Ok(hidden / query_heads)
}

/// `rope_parameters` (new) or `rope_scaling` (old), `rope_theta` and `partial_rotary_factor` inside
/// or beside it.
fn rope(fields: &Fields<'_>, family: Family, head_dim: usize) -> Result<RopeConfig> {
    let mut levels = Vec::new();
    if let Some(parameters) = fields.object("rope_parameters")? {
        levels.extend(parameters.get("full_attention").and_then(|v| v.as_object()));
        levels.push(parameters);
    }
    levels.extend(fields.object("rope_scaling")?);
    let rope = Fields::new(fields.path(), levels);
    let either = |key: &str| match rope.number(key)? {
        Some(value) => Ok(Some(value)),
        None => fields.number(key),
    };
    let default_part = if family.is_hybrid() { 0.25 } else { 1.0 };
    let part = either("partial_rotary_factor")?.unwrap_or(default_part);
    if !(0.0..=1.0).contains(&part) {
        let reason = format!("{part} is outside 0 to 1");
        return Err(Error::format(fields.path(), "partial_rotary_factor", reason));
    }
    Ok(RopeConfig {
        // Truncated, as Python's int() does.
        dims: (head_dim as f64 * part) as usize,
        theta: either("rope_theta")?.unwrap_or(10_000.0),
        pairing: RopePairing::Half,
        scaling: rope_scaling(fields, &rope)?,
    })
}

fn rope_scaling(fields: &Fields<'_>, rope: &Fields<'_>) -> Result<RopeScaling> {
    let kind = match rope.text("rope_type")? {
        Some(kind) => kind,
        None => rope.text("type")?.unwrap_or("default"),
    };
    let number = |key: &str| {
        rope.number(key)?.ok_or_else(|| {
            Error::format(fields.path(), format!("rope {key}"), format!("missing with type {kind}"))
        })
    };
    match kind {
        // Text has the same position in all three streams of mrope: ordinary rotation.
        "default" | "mrope" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor: number("factor")? }),
        "llama3" => {
            let key = "original_max_position_embeddings";
            let original = match rope.size(key)? {
                Some(original) => original,
                None => fields.require_size(key)?,
            };
            Ok(RopeScaling::Llama3 {
                factor: number("factor")?,
                low_freq_factor: number("low_freq_factor")?,
                high_freq_factor: number("high_freq_factor")?,
                original_max_positions: original,
            })
        }
        other => Err(unsupported(
            fields,
            format!("rope type {other}"),
            "default, linear and llama3 are; remove the scaling to use the original context",
        )),
    }
}

fn delta_net(fields: &Fields<'_>) -> Result<DeltaNetConfig> {
    Ok(DeltaNetConfig {
        key_heads: fields.size("linear_num_key_heads")?.unwrap_or(16),
        value_heads: fields.size("linear_num_value_heads")?.unwrap_or(32),
        key_dim: fields.size("linear_key_head_dim")?.unwrap_or(128),
        value_dim: fields.size("linear_value_head_dim")?.unwrap_or(128),
        conv_kernel: fields.size("linear_conv_kernel_dim")?.unwrap_or(4),
        head_map: HeadMap::Divide,
    })
}

fn feed_forward(fields: &Fields<'_>, family: Family) -> Result<FeedForwardConfig> {
    if family != Family::HybridMoe {
        return Ok(FeedForwardConfig::Dense {
            intermediate: fields.require_size("intermediate_size")?,
        });
    }
    Ok(FeedForwardConfig::Moe {
        experts: fields.size("num_experts")?.unwrap_or(256),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate: fields.size("moe_intermediate_size")?.unwrap_or(512),
        shared_intermediate: fields.size("shared_expert_intermediate_size")?.unwrap_or(512),
    })
}
