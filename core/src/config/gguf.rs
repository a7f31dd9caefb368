//! [`ModelConfig`] from the metadata keys of a GGUF file.

use super::hf::interval_layers;
use super::{
    AttentionConfig, DeltaNetConfig, Family, FeedForwardConfig, LayerKind, ModelConfig, RopeConfig,
    RopeScaling, check,
};
use crate::error::{Error, Result};
use crate::ops::{HeadMap, RopePairing};
use crate::weights::gguf::{GgufFile, GgufValue};

/// Architectures that [`ModelConfig::from_gguf`] reads.
pub(super) const ARCHITECTURES: [(&str, Family); 4] = [
    ("qwen35", Family::HybridDense),
    ("qwen35moe", Family::HybridMoe),
    ("qwen3", Family::Qwen3),
    ("llama", Family::Llama),
];

/// Keys of relatives of these architectures; each changes the graph.
const REFUSED: [&str; 7] = [
    "attention.clamp_kqv",
    "attention.scale",
    "attn_logit_softcapping",
    "embedding_scale",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
];

impl ModelConfig {
    /// Reads the keys of the file's architecture. `mtp` and `tied_embeddings` are what the tensor
    /// names say.
    ///
    /// # Errors
    /// [`Error::Format`] naming key and value, [`Error::Unsupported`] for an architecture or
    /// feature that forge does not have.
    pub fn from_gguf(file: &GgufFile) -> Result<Self> {
        let keys = Keys { file, architecture: file.require_str("general.architecture")? };
        let family = keys.family()?;
        keys.refuse_features(family)?;
        let blocks = keys.require_size("block_count")?;
        let blocks = check::layer_count(&file.path, &keys.name("block_count"), blocks)?;
        let main = keys.main_layers(family, blocks)?;
        let kinds = keys.block_kinds(family, main, blocks)?;
        let attention = keys.attention(family, &kinds)?;
        let config = Self {
            family,
            vocab_size: keys.vocab_size()?,
            hidden_size: keys.require_size("embedding_length")?,
            layers: kinds[..main.min(kinds.len())].to_vec(),
            rms_norm_eps: file.require_f32(&keys.name("attention.layer_norm_rms_epsilon"))?,
            tied_embeddings: !file.tensors.contains_key("output.weight"),
            attention,
            delta_net: if family.is_hybrid() { Some(keys.delta_net()?) } else { None },
            feed_forward: keys.feed_forward(family, &kinds)?,
            mtp: family.is_hybrid() && keys.has_block(main),
            max_positions: keys.require_size("context_length")?,
        };
        config.check(&file.path)?;
        Ok(config)
    }
}

/// Keys that start with the name of the architecture.
struct Keys<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn size(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.file.optional_u32(&self.name(key))?.map(|value| value as usize))
    }

    fn require_size(&self, key: &str) -> Result<usize> {
        Ok(self.file.require_u32(&self.name(key))? as usize)
    }

    fn wrong(&self, key: &str, reason: String) -> Error {
        Error::format(&self.file.path, self.name(key), reason)
    }

    fn unsupported(&self, what: String, reason: &str) -> Error {
        Error::unsupported(format!("{what} ({})", self.file.path.display()), reason)
    }

    fn family(&self) -> Result<Family> {
        let known = ARCHITECTURES.iter().find(|(name, _)| *name == self.architecture);
        let (_, family) = known.ok_or_else(|| {
            let names: Vec<_> = ARCHITECTURES.iter().map(|(name, _)| *name).collect();
            Error::unsupported(
                format!("architecture {}", self.architecture),
                format!("{} needs one of {}", self.file.path.display(), names.join(", ")),
            )
        })?;
        Ok(*family)
    }

    fn refuse_features(&self, family: Family) -> Result<()> {
        if let Some(kind) = self.file.optional_str("general.type")?
            && kind != "model"
        {
            return Err(self.unsupported(format!("file type {kind}"), "open the model itself"));
        }
        for key in REFUSED {
            if let Some(value) = self.file.get(&self.name(key)) {
                let what = format!("{} {value}", self.name(key));
                return Err(self.unsupported(what, "the graph has no such factor"));
            }
        }
        if family != Family::HybridMoe && self.size("expert_count")?.unwrap_or(0) > 0 {
            let what = format!("a mixture of experts in {}", self.architecture);
            return Err(self.unsupported(what, "qwen35moe is"));
        }
        let window = self.size("attention.sliding_window")?.unwrap_or(0);
        if window > 0 && window < self.require_size("context_length")? {
            let what = format!("{} {window}", self.name("attention.sliding_window"));
            return Err(self.unsupported(what, "attention here always sees the whole context"));
        }
        Ok(())
    }

    /// True if the file has any tensor of block `index`.
    fn has_block(&self, index: usize) -> bool {
        self.has_tensors(&format!("blk.{index}."))
    }

    fn has_tensors(&self, prefix: &str) -> bool {
        let mut from = self.file.tensors.range(prefix.to_owned()..);
        from.next().is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// Blocks that are layers of the model: `block_count` counts the draft block as well. A file
    /// that lacks the count of draft blocks shows one by its tensors.
    fn main_layers(&self, family: Family, blocks: usize) -> Result<usize> {
        let key = "nextn_predict_layers";
        let last = blocks - 1;
        let drafts = match self.size(key)?.unwrap_or(0) {
            0 => usize::from(family.is_hybrid() && self.has_tensors(&format!("blk.{last}.nextn."))),
            count => count,
        };
        match drafts {
            0 => Ok(blocks),
            _ if !family.is_hybrid() => {
                let what = format!("{} {drafts}", self.name(key));
                Err(self.unsupported(what, "only the hybrid family has a draft head"))
            }
            1 if blocks > 1 => Ok(last),
            1 => Err(self.wrong(key, "1 leaves no main layer of a block_count of 1".to_owned())),
            _ => {
                let what = format!("{} {drafts}", self.name(key));
                Err(self.unsupported(what, "a draft head has one block"))
            }
        }
    }

    /// Mixer of every block, the draft block last.
    fn block_kinds(&self, family: Family, main: usize, blocks: usize) -> Result<Vec<LayerKind>> {
        if !family.is_hybrid() {
            return Ok(vec![LayerKind::Attention; blocks]);
        }
        let key = "attention.recurrent_layers";
        let mut kinds = match self.file.optional_bools(&self.name(key))? {
            Some(list) if list.len() == blocks || list.len() == main => list
                .iter()
                .map(
                    |recurrent| if *recurrent { LayerKind::DeltaNet } else { LayerKind::Attention },
                )
                .collect(),
            Some(list) => {
                return Err(self.wrong(key, format!("{} entries for {blocks} blocks", list.len())));
            }
            None => {
                let interval = self.size("full_attention_interval")?.unwrap_or(4);
                let name = self.name("full_attention_interval");
                interval_layers(&self.file.path, &name, main, interval)?
            }
        };
        if kinds[main.min(kinds.len())..].contains(&LayerKind::DeltaNet) {
            return Err(self.wrong(key, format!("block {main} is recurrent, a draft block is not")));
        }
        kinds.resize(blocks, LayerKind::Attention);
        Ok(kinds)
    }

    /// A count, or one per block that is the same in all blocks that `wanted` picks.
    fn uniform(
        &self,
        key: &str,
        kinds: &[LayerKind],
        wanted: impl Fn(LayerKind) -> bool,
    ) -> Result<Option<usize>> {
        let name = self.name(key);
        let Some(GgufValue::Array(_)) = self.file.get(&name) else { return self.size(key) };
        let list = self.file.require_u32s(&name)?;
        if list.len() > kinds.len() {
            let reason = format!("{} entries for {} blocks", list.len(), kinds.len());
            return Err(self.wrong(key, reason));
        }
        let mut values = list.iter().zip(kinds).filter(|(_, kind)| wanted(**kind)).map(|(v, _)| *v);
        let Some(first) = values.next() else {
            return Err(self.wrong(key, "no entry for any layer that needs it".to_owned()));
        };
        match values.find(|value| *value != first) {
            Some(other) => Err(self.unsupported(
                format!("{name} of {first} and {other}"),
                "all layers must have the same size",
            )),
            None => Ok(Some(first as usize)),
        }
    }

    fn vocab_size(&self) -> Result<usize> {
        match self.size("vocab_size")? {
            Some(size) => Ok(size),
            None => Ok(self.file.require_strings("tokenizer.ggml.tokens")?.len()),
        }
    }

    fn attention(&self, family: Family, kinds: &[LayerKind]) -> Result<AttentionConfig> {
        let attends = |kind| kind == LayerKind::Attention;
        let heads_key = "attention.head_count";
        let query_heads = self
            .uniform(heads_key, kinds, attends)?
            .ok_or_else(|| self.wrong(heads_key, "metadata key is missing".to_owned()))?;
        let kv_heads = self.uniform("attention.head_count_kv", kinds, attends)?;
        let head_dim = match self.size("attention.key_length")? {
            Some(length) => length,
            None => {
                let hidden = self.require_size("embedding_length")?;
                if query_heads == 0 || hidden % query_heads != 0 {
                    let reason = format!(
                        "embedding_length {hidden} does not divide into {query_heads} heads"
                    );
                    return Err(self.wrong(heads_key, reason));
                }
                hidden / query_heads
            }
        };
        let value_length = self.size("attention.value_length")?.unwrap_or(head_dim);
        if value_length != head_dim {
            let what = format!("value_length {value_length} beside key_length {head_dim}");
            return Err(self.unsupported(what, "keys and values must have the same size"));
        }
        Ok(AttentionConfig {
            query_heads,
            kv_heads: kv_heads.unwrap_or(query_heads),
            head_dim,
            gated: family.is_hybrid(),
            qk_norm: family != Family::Llama,
            rope: RopeConfig {
                dims: self.size("rope.dimension_count")?.unwrap_or(head_dim),
                theta: self
                    .file
                    .optional_f32(&self.name("rope.freq_base"))?
                    .unwrap_or(10_000.0)
                    .into(),
                // Converters permute the rows of Llama's q and k for this pairing.
                pairing: match family {
                    Family::Llama => RopePairing::Adjacent,
                    _ => RopePairing::Half,
                },
                scaling: self.rope_scaling()?,
            },
        })
    }

    fn rope_scaling(&self) -> Result<RopeScaling> {
        let kind_name = self.name("rope.scaling.type");
        match self.file.optional_str(&kind_name)? {
            Some("none") => Ok(RopeScaling::None),
            Some("linear") => {
                let factor = self.file.require_f32(&self.name("rope.scaling.factor"))?;
                Ok(RopeScaling::Linear { factor: factor.into() })
            }
            Some(kind) => Err(self.unsupported(
                format!("{kind_name} {kind}"),
                "none and linear are; use a file converted for the original context",
            )),
            // Files of 2023 have only a factor; 0 and 1 mean none.
            None => match self.file.optional_f32(&self.name("rope.scale_linear"))? {
                Some(factor) if factor != 0.0 && factor != 1.0 => {
                    Ok(RopeScaling::Linear { factor: factor.into() })
                }
                _ => Ok(RopeScaling::None),
            },
        }
    }

    fn delta_net(&self) -> Result<DeltaNetConfig> {
        let value_heads = self.require_size("ssm.time_step_rank")?;
        let inner = self.require_size("ssm.inner_size")?;
        if value_heads == 0 || inner % value_heads != 0 {
            let reason = format!("{inner} does not divide into {value_heads} value heads");
            return Err(self.wrong("ssm.inner_size", reason));
        }
        Ok(DeltaNetConfig {
            key_heads: self.require_size("ssm.group_count")?,
            value_heads,
            key_dim: self.require_size("ssm.state_size")?,
            value_dim: inner / value_heads,
            conv_kernel: self.require_size("ssm.conv_kernel")?,
            head_map: HeadMap::Modulo,
        })
    }

    fn feed_forward(&self, family: Family, kinds: &[LayerKind]) -> Result<FeedForwardConfig> {
        if family != Family::HybridMoe {
            let key = "feed_forward_length";
            let intermediate = self
                .uniform(key, kinds, |_| true)?
                .ok_or_else(|| self.wrong(key, "metadata key is missing".to_owned()))?;
            return Ok(FeedForwardConfig::Dense { intermediate });
        }
        let intermediate = self.require_size("expert_feed_forward_length")?;
        Ok(FeedForwardConfig::Moe {
            experts: self.require_size("expert_count")?,
            top_k: self.require_size("expert_used_count")?,
            intermediate,
            shared_intermediate: self
                .size("expert_shared_feed_forward_length")?
                .unwrap_or(intermediate),
        })
    }
}
