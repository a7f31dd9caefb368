//! [`ModelConfig`]: what the graph needs to know of a model, the same for every file format.

mod check;
mod gguf;
mod hf;
pub(crate) mod json;
#[cfg(test)]
mod tests;
mod to_gguf;

use crate::ops::{HeadMap, RopePairing};
use serde::{Deserialize, Serialize};

/// Supported architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Qwen3.5 / 3.6 / 3.8 dense: gated delta net and gated attention.
    HybridDense,
    /// The same with mixture-of-experts feed-forward.
    HybridMoe,
    /// Qwen3 dense.
    Qwen3,
    /// Llama and Mistral.
    Llama,
}

impl Family {
    /// Name in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HybridDense => "hybrid_dense",
            Self::HybridMoe => "hybrid_moe",
            Self::Qwen3 => "qwen3",
            Self::Llama => "llama",
        }
    }
    /// True for the Qwen3.5 family: delta net layers, gated attention, possibly an MTP block.
    pub const fn is_hybrid(self) -> bool {
        matches!(self, Self::HybridDense | Self::HybridMoe)
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The mixer of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// Full softmax attention with KV.
    Attention,
    /// Gated delta net with a recurrent state.
    DeltaNet,
}

/// Rotary embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeConfig {
    /// Values of a head that are rotated.
    pub dims: usize,
    /// Base.
    pub theta: f64,
    /// Pairing.
    pub pairing: RopePairing,
    /// Change of the frequencies for long contexts.
    pub scaling: RopeScaling,
}

/// Scaling of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum RopeScaling {
    /// None. A `rope_freqs` tensor, if the checkpoint has one, still divides the frequencies.
    None,
    /// Every frequency divided by `factor`.
    Linear {
        /// Divisor.
        factor: f64,
    },
    /// Llama 3: low frequencies divided, high ones kept, the middle blended.
    Llama3 {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// Wavelengths above `original / low` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original / high` are kept.
        high_freq_factor: f64,
        /// Context of the first training stage.
        original_max_positions: usize,
    },
}

/// Full attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionConfig {
    /// Query heads.
    pub query_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// The query projection holds an output gate beside each query head.
    pub gated: bool,
    /// Query and key heads are normed before rotation.
    pub qk_norm: bool,
    /// Rotary embedding.
    pub rope: RopeConfig,
}

/// Gated delta net.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeltaNetConfig {
    /// Query/key heads.
    pub key_heads: usize,
    /// Value heads, a multiple of `key_heads`.
    pub value_heads: usize,
    /// Values of a key head.
    pub key_dim: usize,
    /// Values of a value head.
    pub value_dim: usize,
    /// Taps of the convolution.
    pub conv_kernel: usize,
    /// Order of the value heads in this file.
    pub head_map: HeadMap,
}

impl DeltaNetConfig {
    /// Convolution channels: `q | k | v`.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.values()
    }
    /// Values of all value heads.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }
    /// Elements of the recurrent state of one sequence in one layer.
    pub fn state_len(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim
    }
    /// Elements of the convolution state of one sequence in one layer.
    pub fn conv_state_len(&self) -> usize {
        (self.conv_kernel - 1) * self.channels()
    }
}

/// Feed-forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum FeedForwardConfig {
    /// SwiGLU.
    Dense {
        /// Inner values.
        intermediate: usize,
    },
    /// Routed SwiGLU experts and a gated shared one.
    Moe {
        /// Experts.
        experts: usize,
        /// Experts used per token.
        top_k: usize,
        /// Inner values of an expert.
        intermediate: usize,
        /// Inner values of the shared expert.
        shared_intermediate: usize,
    },
}

/// A model's hyper-parameters, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Architecture.
    pub family: Family,
    /// Rows of the embedding and of the head (padding included).
    pub vocab_size: usize,
    /// Residual stream.
    pub hidden_size: usize,
    /// Mixer of each main layer.
    pub layers: Vec<LayerKind>,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f32,
    /// The head is the embedding.
    pub tied_embeddings: bool,
    /// Attention layers.
    pub attention: AttentionConfig,
    /// Delta net layers, if there are any.
    pub delta_net: Option<DeltaNetConfig>,
    /// Feed-forward of every layer.
    pub feed_forward: FeedForwardConfig,
    /// The checkpoint holds an MTP block.
    pub mtp: bool,
    /// Longest context the model was made for.
    pub max_positions: usize,
}

impl ModelConfig {
    /// Main layers with KV.
    pub fn attention_layers(&self) -> usize {
        self.layers.iter().filter(|k| **k == LayerKind::Attention).count()
    }
    /// Layers with a recurrent state.
    pub fn delta_net_layers(&self) -> usize {
        self.layers.len() - self.attention_layers()
    }
    /// Bytes of recurrent and convolution state of one sequence, all layers, f32.
    pub fn state_bytes(&self) -> usize {
        let one = self.delta_net.as_ref().map_or(0, |d| 4 * (d.state_len() + d.conv_state_len()));
        one * self.delta_net_layers()
    }
}
