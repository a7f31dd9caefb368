//! [`Inspection`]: what a checkpoint is and what it will cost, for people and scripts.

use crate::config::{Family, ModelConfig};
use crate::kv::{BLOCK_TOKENS, KvLayout, KvType};
use crate::weights::canonical::ROPE_FREQS;
use crate::weights::{Checkpoint, Format, GenerationDefaults};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A tensor of an [`Inspection`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorSummary {
    /// Canonical name.
    pub name: String,
    /// Name in the file.
    pub file_name: String,
    /// Storage type.
    #[serde(rename = "type")]
    pub storage: &'static str,
    /// Shape, slowest dimension first.
    pub shape: Vec<usize>,
    /// Bytes as stored.
    pub bytes: u64,
}

/// KV memory per token for one storage type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KvCost {
    /// Storage of keys and values.
    pub kv_type: KvType,
    /// Bytes per token over the main attention layers.
    pub bytes_per_token: u64,
    /// The same with the KV of the MTP block; equal if there is none.
    pub bytes_per_token_with_mtp: u64,
}

/// Facts about a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// Name the checkpoint gives itself.
    pub name: String,
    /// File or folder.
    pub path: PathBuf,
    /// Container.
    pub format: Format,
    /// Architecture.
    pub family: Family,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Longest context the model was made for.
    pub context: usize,
    /// Hyper-parameters.
    pub config: ModelConfig,
    /// Sampling defaults.
    pub generation: GenerationDefaults,
    /// True if there is a chat template.
    pub chat_template: bool,
    /// Values of all main tensors: a tied embedding counts once.
    pub parameters: u64,
    /// Values of the tensors of the MTP block.
    pub mtp_parameters: u64,
    /// Bytes of all tensors.
    pub weight_bytes: u64,
    /// Bytes by storage type.
    pub bytes_by_type: BTreeMap<&'static str, u64>,
    /// KV memory per token; types that do not fit the head size are left out.
    pub kv: Vec<KvCost>,
    /// Recurrent and convolution state of a sequence in bytes.
    pub state_bytes_per_sequence: u64,
    /// Tensors by canonical name.
    pub tensors: Vec<TensorSummary>,
}

impl Inspection {
    /// Inspects an open checkpoint; no tensor data are read.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let config = &checkpoint.config;
        let mut bytes_by_type = BTreeMap::new();
        let (mut parameters, mut mtp_parameters) = (0, 0);
        let mut tensors = Vec::with_capacity(checkpoint.tensors.len());
        for (name, tensor) in &checkpoint.tensors {
            let values = tensor.shape.iter().map(|dim| *dim as u64).product::<u64>();
            let bytes = tensor.data.len() as u64;
            *bytes_by_type.entry(tensor.storage.name()).or_insert(0) += bytes;
            if name.starts_with("mtp.") {
                mtp_parameters += values;
            } else if name != ROPE_FREQS {
                // Frequency divisors are constants of the configuration.
                parameters += values;
            }
            tensors.push(TensorSummary {
                name: name.clone(),
                file_name: tensor.name.clone(),
                storage: tensor.storage.name(),
                shape: tensor.shape.clone(),
                bytes,
            });
        }
        Self {
            name: checkpoint.name.clone(),
            path: checkpoint.path.clone(),
            format: checkpoint.format,
            family: config.family,
            vocab_size: config.vocab_size,
            context: config.max_positions,
            generation: checkpoint.generation.clone(),
            chat_template: checkpoint.chat_template.is_some(),
            parameters,
            mtp_parameters,
            weight_bytes: bytes_by_type.values().sum(),
            bytes_by_type,
            kv: kv_costs(config),
            state_bytes_per_sequence: config.state_bytes() as u64,
            tensors,
            config: config.clone(),
        }
    }
}

fn kv_costs(config: &ModelConfig) -> Vec<KvCost> {
    let cost = |kv_type| {
        let attention = &config.attention;
        let (kv_heads, head_dim) = (attention.kv_heads, attention.head_dim);
        let layout = KvLayout { kv_type, kv_heads, head_dim };
        layout.check().is_ok().then(|| {
            let layer = layout.block_bytes() / BLOCK_TOKENS;
            let main = config.attention_layers();
            KvCost {
                kv_type,
                bytes_per_token: (layer * main) as u64,
                bytes_per_token_with_mtp: (layer * (main + usize::from(config.mtp))) as u64,
            }
        })
    };
    [KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8].into_iter().filter_map(cost).collect()
}
