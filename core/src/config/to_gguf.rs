//! The metadata keys of a GGUF file from a [`ModelConfig`].

use super::gguf::ARCHITECTURES;
use super::{FeedForwardConfig, LayerKind, ModelConfig, RopeScaling};
use crate::error::{Error, Result};
use crate::weights::gguf::{GgufArray, GgufValue};

impl ModelConfig {
    /// The keys that [`ModelConfig::from_gguf`] reads, `general.architecture` first. Heads must be
    /// in the order of the format ([`HeadMap::Modulo`](crate::ops::HeadMap::Modulo)); the tensors
    /// say whether the embedding is tied and the token list how many rows it has.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for rotary scaling that the format keeps in a tensor,
    /// [`Error::Invalid`] for a size beyond 32 bits.
    pub fn to_gguf(&self) -> Result<Vec<(String, GgufValue)>> {
        let known = ARCHITECTURES.iter().find(|(_, family)| *family == self.family);
        let (architecture, _) = known.ok_or_else(|| {
            Error::unsupported(format!("{} in GGUF", self.family), "it has no architecture name")
        })?;
        let mut keys = KeyList { architecture, keys: Vec::new() };
        let name = GgufValue::String((*architecture).to_owned());
        keys.keys.push(("general.architecture".to_owned(), name));
        let mtp = usize::from(self.mtp);
        keys.size("block_count", self.layers.len() + mtp)?;
        keys.size("context_length", self.max_positions)?;
        keys.size("embedding_length", self.hidden_size)?;
        keys.put("attention.layer_norm_rms_epsilon", GgufValue::F32(self.rms_norm_eps));
        keys.attention(self)?;
        keys.feed_forward(self)?;
        if self.family.is_hybrid() {
            keys.hybrid(self)?;
        }
        if mtp > 0 {
            keys.size("nextn_predict_layers", mtp)?;
        }
        Ok(keys.keys)
    }
}

/// Keys that start with the name of the architecture.
struct KeyList<'a> {
    architecture: &'a str,
    keys: Vec<(String, GgufValue)>,
}

impl KeyList<'_> {
    fn put(&mut self, key: &str, value: GgufValue) {
        self.keys.push((format!("{}.{key}", self.architecture), value));
    }

    fn size(&mut self, key: &str, size: usize) -> Result<()> {
        let value = u32::try_from(size)
            .map_err(|_| Error::invalid(key, format!("{size} does not fit 32 bits")))?;
        self.put(key, GgufValue::U32(value));
        Ok(())
    }

    fn attention(&mut self, config: &ModelConfig) -> Result<()> {
        let attention = &config.attention;
        self.size("attention.head_count", attention.query_heads)?;
        self.size("attention.head_count_kv", attention.kv_heads)?;
        self.size("attention.key_length", attention.head_dim)?;
        self.size("attention.value_length", attention.head_dim)?;
        self.size("rope.dimension_count", attention.rope.dims)?;
        self.put("rope.freq_base", GgufValue::F32(attention.rope.theta as f32));
        match attention.rope.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => {
                self.put("rope.scaling.type", GgufValue::String("linear".to_owned()));
                self.put("rope.scaling.factor", GgufValue::F32(factor as f32));
                Ok(())
            }
            RopeScaling::Llama3 { .. } => Err(Error::unsupported(
                "llama3 rotary scaling in GGUF",
                "the format keeps it in the tensor rope_freqs",
            )),
        }
    }

    fn feed_forward(&mut self, config: &ModelConfig) -> Result<()> {
        match config.feed_forward {
            FeedForwardConfig::Dense { intermediate } => {
                self.size("feed_forward_length", intermediate)
            }
            FeedForwardConfig::Moe { experts, top_k, intermediate, shared_intermediate } => {
                self.size("expert_count", experts)?;
                self.size("expert_used_count", top_k)?;
                self.size("expert_feed_forward_length", intermediate)?;
                self.size("expert_shared_feed_forward_length", shared_intermediate)
            }
        }
    }

    fn hybrid(&mut self, config: &ModelConfig) -> Result<()> {
        let delta = config.delta_net.as_ref();
        let delta = delta.ok_or_else(|| Error::invalid("delta_net", "absent from the config"))?;
        self.size("ssm.conv_kernel", delta.conv_kernel)?;
        self.size("ssm.state_size", delta.key_dim)?;
        self.size("ssm.group_count", delta.key_heads)?;
        self.size("ssm.time_step_rank", delta.value_heads)?;
        self.size("ssm.inner_size", delta.values())?;
        // For text the three position streams are one; other readers insist on the sections.
        let pairs = config.attention.rope.dims / 2;
        let third = pairs.div_ceil(3);
        let sections = [third, third.min(pairs - third), pairs.saturating_sub(2 * third), 0];
        let sections = GgufArray::I32(sections.iter().map(|&n| n as i32).collect());
        self.put("rope.dimension_sections", GgufValue::Array(sections));
        let attends = |kind: &LayerKind| *kind == LayerKind::Attention;
        let interval = config.layers.iter().position(attends).map_or(usize::MAX, |at| at + 1);
        let regular =
            |(at, kind): (usize, &LayerKind)| attends(kind) == (at + 1).is_multiple_of(interval);
        if config.layers.iter().enumerate().all(regular) && interval != usize::MAX {
            return self.size("full_attention_interval", interval);
        }
        let mut recurrent: Vec<bool> = config.layers.iter().map(|kind| !attends(kind)).collect();
        recurrent.extend(config.mtp.then_some(false));
        let recurrent = GgufValue::Array(GgufArray::Bool(recurrent));
        self.put("attention.recurrent_layers", recurrent);
        Ok(())
    }
}
