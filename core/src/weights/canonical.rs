//! The canonical tensors of a [`ModelConfig`], their shapes and roles, and the bag of file tensors
//! they are taken from.

use super::host::HostTensor;
use crate::config::{FeedForwardConfig, LayerKind, ModelConfig};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Canonical name of the optional frequency divisors.
pub(crate) const ROPE_FREQS: &str = "rope_freqs";

/// How a canonical tensor is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Norm weights, per-head constants, convolution taps, frequency divisors: owned f32.
    Vector,
    /// Small matrices that decide (expert choice, shared gate): never quantised by forge.
    Router,
    /// Everything else.
    Matrix,
}

/// Role of the tensor `name`.
pub(crate) fn role(name: &str) -> Role {
    match name.rsplit('.').next().unwrap_or(name) {
        "attn_norm" | "ffn_norm" | "norm" | "q_norm" | "k_norm" | "embed_norm" | "hidden_norm"
        | "neg_a" | "dt_bias" | "conv" | ROPE_FREQS => Role::Vector,
        "router" | "shared_gate" => Role::Router,
        _ => Role::Matrix,
    }
}

/// A canonical tensor that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
}

impl Slot {
    /// The optional divisors of the rotary frequencies.
    pub(crate) fn rope_freqs(config: &ModelConfig) -> Self {
        Self { name: ROPE_FREQS.to_owned(), shape: vec![config.attention.rope.dims / 2] }
    }
}

/// All tensors that `config` needs, but for the optional `rope_freqs`. `fused` says of a layer
/// prefix (`layers.3.` or `mtp.`) whether gate and up rows of its experts are one tensor.
pub(crate) fn slots(config: &ModelConfig, fused: &dyn Fn(&str) -> bool) -> Vec<Slot> {
    let mut list = SlotList { config, slots: Vec::new() };
    let (vocab, hidden) = (config.vocab_size, config.hidden_size);
    list.add("embed", &[vocab, hidden]);
    if !config.tied_embeddings {
        list.add("lm_head", &[vocab, hidden]);
    }
    list.add("norm", &[hidden]);
    for (index, kind) in config.layers.iter().enumerate() {
        let prefix = format!("layers.{index}.");
        list.layer(&prefix, *kind, fused(&prefix));
    }
    if config.mtp {
        list.add("mtp.fc", &[hidden, 2 * hidden]);
        for name in ["mtp.embed_norm", "mtp.hidden_norm", "mtp.norm"] {
            list.add(name, &[hidden]);
        }
        list.layer("mtp.", LayerKind::Attention, fused("mtp."));
    }
    list.slots
}

struct SlotList<'a> {
    config: &'a ModelConfig,
    slots: Vec<Slot>,
}

impl SlotList<'_> {
    fn add(&mut self, name: impl Into<String>, shape: &[usize]) {
        self.slots.push(Slot { name: name.into(), shape: shape.to_vec() });
    }

    fn layer(&mut self, prefix: &str, kind: LayerKind, fused: bool) {
        let hidden = self.config.hidden_size;
        self.add(format!("{prefix}attn_norm"), &[hidden]);
        match kind {
            LayerKind::Attention => self.attention(&format!("{prefix}attn.")),
            LayerKind::DeltaNet => self.delta_net(&format!("{prefix}delta.")),
        }
        self.add(format!("{prefix}ffn_norm"), &[hidden]);
        self.feed_forward(prefix, fused);
    }

    fn attention(&mut self, prefix: &str) {
        let hidden = self.config.hidden_size;
        let attention = &self.config.attention;
        let dim = attention.head_dim;
        let (queries, keys) = (attention.query_heads * dim, attention.kv_heads * dim);
        let query_rows = if attention.gated { 2 * queries } else { queries };
        let qk_norm = attention.qk_norm;
        self.add(format!("{prefix}q"), &[query_rows, hidden]);
        self.add(format!("{prefix}k"), &[keys, hidden]);
        self.add(format!("{prefix}v"), &[keys, hidden]);
        self.add(format!("{prefix}o"), &[hidden, queries]);
        if qk_norm {
            self.add(format!("{prefix}q_norm"), &[dim]);
            self.add(format!("{prefix}k_norm"), &[dim]);
        }
    }

    fn delta_net(&mut self, prefix: &str) {
        let hidden = self.config.hidden_size;
        let Some(delta) = self.config.delta_net.clone() else { return };
        let heads = delta.value_heads;
        self.add(format!("{prefix}qkv"), &[delta.channels(), hidden]);
        self.add(format!("{prefix}z"), &[delta.values(), hidden]);
        self.add(format!("{prefix}b"), &[heads, hidden]);
        self.add(format!("{prefix}a"), &[heads, hidden]);
        self.add(format!("{prefix}out"), &[hidden, delta.values()]);
        self.add(format!("{prefix}neg_a"), &[heads]);
        self.add(format!("{prefix}dt_bias"), &[heads]);
        self.add(format!("{prefix}conv"), &[delta.channels(), delta.conv_kernel]);
        self.add(format!("{prefix}norm"), &[delta.value_dim]);
    }

    fn feed_forward(&mut self, prefix: &str, fused: bool) {
        let hidden = self.config.hidden_size;
        match self.config.feed_forward {
            FeedForwardConfig::Dense { intermediate } => {
                self.swiglu(&format!("{prefix}ffn."), intermediate);
            }
            FeedForwardConfig::Moe { experts, intermediate, shared_intermediate, .. } => {
                let moe = format!("{prefix}moe.");
                self.add(format!("{moe}router"), &[experts, hidden]);
                if fused {
                    self.add(format!("{moe}experts.gate_up"), &[experts, 2 * intermediate, hidden]);
                } else {
                    self.add(format!("{moe}experts.gate"), &[experts, intermediate, hidden]);
                    self.add(format!("{moe}experts.up"), &[experts, intermediate, hidden]);
                }
                self.add(format!("{moe}experts.down"), &[experts, hidden, intermediate]);
                self.swiglu(&format!("{moe}shared."), shared_intermediate);
                self.add(format!("{moe}shared_gate"), &[1, hidden]);
            }
        }
    }

    fn swiglu(&mut self, prefix: &str, intermediate: usize) {
        let hidden = self.config.hidden_size;
        self.add(format!("{prefix}gate"), &[intermediate, hidden]);
        self.add(format!("{prefix}up"), &[intermediate, hidden]);
        self.add(format!("{prefix}down"), &[hidden, intermediate]);
    }
}

/// What turns a stored vector into the canonical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    /// Nothing.
    Keep,
    /// Adds 1: zero-centred norm weights.
    PlusOne,
    /// `-exp(x)`: the decay of a delta net head.
    NegExp,
}

/// The tensors of a file, taken one by one; what is left at the end was read by nothing.
pub(crate) struct Source<'a> {
    path: &'a Path,
    tensors: BTreeMap<String, HostTensor>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(path: &'a Path, tensors: BTreeMap<String, HostTensor>) -> Self {
        Self { path, tensors }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// True if any name starts with `prefix`.
    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        self.tensors
            .range(prefix.to_owned()..)
            .next()
            .is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// Removes the tensor `name`.
    pub(crate) fn take(&mut self, name: &str) -> Result<HostTensor> {
        self.tensors.remove(name).ok_or_else(|| Error::MissingTensor {
            path: self.path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Removes the tensor `name` for `slot`: its shape checked, vectors transformed and made f32.
    pub(crate) fn take_for(
        &mut self,
        slot: &Slot,
        name: &str,
        transform: Transform,
    ) -> Result<HostTensor> {
        let tensor = fit(self.path, self.take(name)?, &slot.shape)?;
        if role(&slot.name) != Role::Vector {
            return Ok(tensor);
        }
        let (tensor, values) = vector(self.path, &tensor, transform)?;
        if slot.name == ROPE_FREQS
            && let Some(index) = values.iter().position(|value| *value <= 0.0)
        {
            let reason = format!("divisor {} at index {index} is not positive", values[index]);
            return Err(Error::format(self.path, name, reason));
        }
        Ok(tensor)
    }

    /// Fails if a tensor is left that `ignored` does not know.
    pub(crate) fn finish(self, ignored: impl Fn(&str) -> bool) -> Result<()> {
        let mut unread = self.tensors.keys().filter(|name| !ignored(name));
        let Some(first) = unread.next() else { return Ok(()) };
        if let Some(reason) = known_extra(first) {
            return Err(Error::unsupported(
                format!("tensor {first} ({})", self.path.display()),
                reason,
            ));
        }
        let reason = match unread.count() {
            0 => "unread: the architecture has no such tensor".to_owned(),
            more => format!("unread, with {more} more: the architecture has no such tensors"),
        };
        Err(Error::format(self.path, first, reason))
    }
}

/// Why a tensor outside the graph is refused rather than called unread.
fn known_extra(name: &str) -> Option<&'static str> {
    /// Tensors of draft heads that do not share the model's.
    const DEDICATED: [&str; 4] =
        ["nextn.embed_tokens.", "nextn.shared_head_head.", "mtp.embed_tokens.", "mtp.lm_head."];
    let last = name.rsplit('.').next().unwrap_or(name);
    if last == "bias" {
        Some("linear layers here have no bias")
    } else if DEDICATED.iter().any(|part| name.contains(part)) {
        Some("the draft head shares embedding and head with the model")
    } else if matches!(last, "scale" | "input_scale" | "weight_scale" | "weight_scale_inv") {
        Some("scales beside the weights belong to FP8 and NVFP4 checkpoints")
    } else if name.starts_with("rope_factors_") {
        Some("long and short rotary factors are another scaling")
    } else {
        None
    }
}

/// Checks the shape; dimensions of 1 may be there or not (`[C, 1, K]` is `[C, K]`).
pub(crate) fn fit(path: &Path, tensor: HostTensor, shape: &[usize]) -> Result<HostTensor> {
    let significant =
        |shape: &[usize]| -> Vec<usize> { shape.iter().copied().filter(|dim| *dim != 1).collect() };
    if significant(&tensor.shape) != significant(shape) {
        return Err(Error::format(
            path,
            tensor.name,
            format!("has shape {:?}, the configuration asks for {shape:?}", tensor.shape),
        ));
    }
    Ok(HostTensor { shape: shape.to_vec(), ..tensor })
}

/// An owned f32 copy of a small tensor, and its values.
///
/// # Errors
/// [`Error::Format`] naming tensor and index if a value is not finite, before or after `transform`.
fn vector(
    path: &Path,
    tensor: &HostTensor,
    transform: Transform,
) -> Result<(HostTensor, Vec<f32>)> {
    let mut values = tensor.to_f32()?;
    for (index, value) in values.iter_mut().enumerate() {
        let stored = *value;
        *value = match transform {
            Transform::Keep => stored,
            Transform::PlusOne => stored + 1.0,
            Transform::NegExp => -stored.exp(),
        };
        if !value.is_finite() {
            let reason = match transform {
                Transform::NegExp => {
                    format!("value {stored} at index {index} has no finite exponential")
                }
                _ => format!("value {stored} at index {index} is not finite"),
            };
            return Err(Error::format(path, &*tensor.name, reason));
        }
    }
    let owned = HostTensor::from_f32(&*tensor.name, tensor.shape.clone(), &values)?;
    Ok((owned, values))
}

/// `suffix` in the second column of `table`; the tables cover every name that [`slots`] makes.
pub(crate) fn translate<'a>(table: &[(&str, &'a str)], suffix: &'a str) -> &'a str {
    table.iter().find(|(canonical, _)| *canonical == suffix).map_or(suffix, |(_, file)| file)
}

/// Splits a canonical name into its layer (`layers.3.`, `mtp.`, or nothing) and the rest.
pub(crate) fn split_layer(name: &str) -> (&str, &str) {
    let end = if name.starts_with("layers.") {
        name.match_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1)
    } else if name.starts_with("mtp.") {
        "mtp.".len()
    } else {
        0
    };
    name.split_at(end)
}
