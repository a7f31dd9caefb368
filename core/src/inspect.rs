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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::samples::fixture;

    fn of(name: &str) -> Inspection {
        Inspection::of(&Checkpoint::open(fixture(name)).unwrap())
    }

    #[test]
    fn counts_and_costs_of_a_hybrid() {
        let folder = of("hybrid-dense-tied");
        let file = of("hybrid-dense-tied/model-Q8_0.gguf");
        assert_eq!(
            (folder.parameters, folder.mtp_parameters),
            (file.parameters, file.mtp_parameters)
        );
        // Attention layer: q 256, k 64, v 64, o 128 rows and three of feed-forward, 128 each, of
        // 128 columns; two norms, two head norms. The draft block adds fc and three norms.
        let attention = (256 + 64 + 64 + 128 + 3 * 128) * 128 + 2 * 128 + 2 * 32;
        assert_eq!(folder.mtp_parameters, attention + 2 * 128 * 128 + 3 * 128);
        let delta = (192 + 96 + 6 + 6 + 96 + 3 * 128) * 128 + 2 * 128 + 6 + 6 + 192 * 4 + 16;
        assert_eq!(folder.parameters, 2 * attention + 6 * delta + 512 * 128 + 128);
        let cost = |inspection: &Inspection, kv_type| {
            let cost = inspection.kv.iter().find(|cost| cost.kv_type == kv_type).unwrap();
            (cost.bytes_per_token, cost.bytes_per_token_with_mtp)
        };
        // 2 layers, keys and values of 2 heads of 32.
        assert_eq!(cost(&folder, KvType::F16), (2 * 2 * 2 * 32 * 2, 3 * 2 * 2 * 32 * 2));
        assert_eq!(cost(&folder, KvType::Fp8), (256, 384));
        assert_eq!(cost(&folder, KvType::Q8_0), (2 * 2 * 2 * 34, 3 * 2 * 2 * 34));
        assert_eq!(folder.state_bytes_per_sequence, 6 * 4 * (6 * 16 * 16 + 3 * 192));
        assert_eq!((folder.vocab_size, folder.context), (512, 4096));
    }

    #[test]
    fn bytes_add_up_and_json_holds_everything() {
        for name in ["llama-dense/model-F16.gguf", "qwen3-dense", "qwen3-dense/model-Q8_0.gguf"] {
            let inspection = of(name);
            let sum: u64 = inspection.tensors.iter().map(|tensor| tensor.bytes).sum();
            assert_eq!(inspection.weight_bytes, sum);
            assert_eq!(inspection.mtp_parameters, 0);
            let json = serde_json::to_value(&inspection).unwrap();
            assert_eq!(json["kv"][0]["kv_type"], "f16");
            assert_eq!(json["family"], inspection.family.name());
            assert!(json["tensors"].as_array().is_some_and(|list| list.len() > 30));
        }
        // The tied embedding counts once, the frequency divisors not at all.
        assert_eq!(of("llama-dense").parameters, of("llama-dense/model-F16.gguf").parameters);
    }
}
