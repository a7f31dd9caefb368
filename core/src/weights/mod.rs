//! Checkpoints: one set of canonical tensor names and one [`ModelConfig`] for every container.
//!
//! # Canonical names
//! `N` counts main layers from 0; the MTP block is `mtp.` + the names of a layer. Shapes as in the
//! checkpoint, `[out, in]`. Norm weights are final factors (the zero-centred ones have 1 added),
//! `delta.neg_a` is `-exp(A_log)`; these small tensors are f32.
//!
//! | name | shape |
//! |---|---|
//! | `embed`, `lm_head` (absent if tied) | `[V, H]` |
//! | `norm` | `[H]` |
//! | `rope_freqs` (optional divisors) | `[n/2]` |
//! | `layers.N.attn_norm`, `layers.N.ffn_norm` | `[H]` |
//! | `layers.N.attn.q` (per head: query, gate if gated), `.k`, `.v`, `.o` | matrices |
//! | `layers.N.attn.q_norm`, `.k_norm` | `[head_dim]` |
//! | `layers.N.delta.qkv`, `.z`, `.b`, `.a`, `.out` | matrices |
//! | `layers.N.delta.neg_a`, `.dt_bias` | `[value_heads]` |
//! | `layers.N.delta.conv` | `[channels, kernel]`, oldest tap first |
//! | `layers.N.delta.norm` | `[value_dim]` |
//! | `layers.N.ffn.gate`, `.up`, `.down` | matrices (dense) |
//! | `layers.N.moe.router` | `[E, H]` |
//! | `layers.N.moe.experts.gate_up`, or `.gate` and `.up` | `[E, 2I, H]` or twice `[E, I, H]` |
//! | `layers.N.moe.experts.down` | `[E, H, I]` |
//! | `layers.N.moe.shared.gate`, `.up`, `.down` | matrices |
//! | `layers.N.moe.shared_gate` | `[1, H]` |
//! | `mtp.fc` (embedding half first) | `[H, 2H]` |
//! | `mtp.embed_norm`, `mtp.hidden_norm`, `mtp.norm` | `[H]` |
//! | `mtp.attn_norm`, `mtp.attn.*`, `mtp.ffn_norm`, `mtp.ffn.*` / `mtp.moe.*` | as a layer |

pub(crate) mod canonical;
mod generation;
pub mod gguf;
pub mod host;
mod layout;
pub mod mmap;
mod names_gguf;
pub(crate) mod names_hf;
pub mod open;
pub mod quant;
#[cfg(test)]
mod reports;
pub mod safetensors;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod testing;
pub mod ytf;

pub use names_gguf::{GgufTensor, gguf_tensors};

use crate::config::ModelConfig;
use crate::error::{Error, Result};
use host::HostTensor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use xxhash_rust::xxh3::Xxh3;

/// Where the tokenizer of a checkpoint comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerSource {
    /// The text of a `tokenizer.json`.
    Json(String),
    /// The vocabulary of a GGUF file.
    Gguf(Box<GgufVocabulary>),
}

/// `tokenizer.ggml.*` of a GGUF file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GgufVocabulary {
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    pub model: String,
    /// `pre`: pre-tokenizer, `default` if absent.
    pub pre: String,
    /// Token texts.
    pub tokens: Vec<String>,
    /// Token types (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte).
    pub token_types: Vec<i32>,
    /// `left right`, rank = index.
    pub merges: Vec<String>,
    /// Scores (SentencePiece).
    pub scores: Vec<f32>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`, then `eot` and `eom` where present.
    pub eos: Vec<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `add_bos_token`; `None` if absent.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
}

/// Sampling and stop defaults that a checkpoint carries (`generation_config.json`, GGUF keys).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationDefaults {
    /// Temperature; 0 = greedy.
    pub temperature: Option<f32>,
    /// Top-k; 0 = off.
    pub top_k: Option<u32>,
    /// Top-p.
    pub top_p: Option<f32>,
    /// Min-p.
    pub min_p: Option<f32>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f32>,
    /// Tokens that end a generation.
    pub eos: Vec<u32>,
    /// Beginning-of-sequence token.
    pub bos: Option<u32>,
}

/// Container of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Hugging Face folder.
    Safetensors,
    /// GGUF file or split set.
    Gguf,
    /// forge's own.
    Ytf,
}

/// A model on disk (or embedded): config, tokenizer, and tensors under canonical names.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// File or folder, for messages.
    pub path: PathBuf,
    /// Container.
    pub format: Format,
    /// Name the checkpoint gives itself, else its file name.
    pub name: String,
    /// Hyper-parameters.
    pub config: ModelConfig,
    /// Tokenizer.
    pub tokenizer: TokenizerSource,
    /// Jinja source of the chat template.
    pub chat_template: Option<String>,
    /// Text of `tokenizer_config.json`, if the container has it (special tokens for templates).
    pub tokenizer_config: Option<String>,
    /// Sampling defaults.
    pub generation: GenerationDefaults,
    /// Tensors by canonical name.
    pub tensors: BTreeMap<String, HostTensor>,
}

/// Places of a tensor, and bytes at each, that the fingerprint looks at.
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 1024;

impl Checkpoint {
    /// The tensor `name`.
    ///
    /// # Errors
    /// [`Error::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&HostTensor> {
        self.tensors
            .get(name)
            .ok_or_else(|| Error::MissingTensor { path: self.path.clone(), name: name.to_owned() })
    }

    /// A hash that tells this model from others: its config, and names, types and samples of all
    /// tensors.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Xxh3::new();
        hash.update(format!("{:?}", self.config).as_bytes());
        for (name, tensor) in &self.tensors {
            hash.update(name.as_bytes());
            hash.update(format!("{:?}{:?}", tensor.storage, tensor.shape).as_bytes());
            let data = tensor.data.as_slice();
            for part in 0..SAMPLES {
                let start = data.len().saturating_sub(SAMPLE_BYTES) / (SAMPLES - 1) * part;
                hash.update(&data[start..data.len().min(start + SAMPLE_BYTES)]);
            }
        }
        hash.digest()
    }

    /// Bytes of the weights that go to the device: an embedding that is not also the head stays
    /// with the host.
    pub fn device_bytes(&self) -> u64 {
        let on_device = |name: &str| name != "embed" || self.config.tied_embeddings;
        let tensors = self.tensors.iter().filter(|(name, _)| on_device(name));
        tensors.map(|(_, tensor)| tensor.data.len() as u64).sum()
    }
}
