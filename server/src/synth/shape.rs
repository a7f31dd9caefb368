//! Sizes of real models.

use anyhow::{Result, bail};
use clap::ValueEnum;
use forge_core::config::{
    AttentionConfig, DeltaNetConfig, Family, FeedForwardConfig, LayerKind, ModelConfig, RopeConfig,
    RopeScaling,
};
use forge_core::ops::{HeadMap, RopePairing};

/// Every fourth layer attends.
const INTERVAL: usize = 4;
/// Rows of the embedding in all of them.
const VOCABULARY: usize = 248_320;

/// A model to imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// Qwen3.5-0.8B.
    #[value(name = "qwen3.5-0.8b")]
    B08,
    /// Qwen3.5-2B.
    #[value(name = "qwen3.5-2b")]
    B2,
    /// Qwen3.5-4B.
    #[value(name = "qwen3.5-4b")]
    B4,
    /// Qwen3.5-9B.
    #[value(name = "qwen3.5-9b")]
    B9,
    /// Qwen3.5-27B.
    #[value(name = "qwen3.5-27b")]
    B27,
    /// Qwen3.5-35B-A3B, a mixture of experts.
    #[value(name = "qwen3.5-35b-a3b")]
    B35A3,
}

/// What differs between them.
struct Sizes {
    layers: usize,
    hidden: usize,
    query_heads: usize,
    kv_heads: usize,
    value_heads: usize,
    feed_forward: FeedForwardConfig,
    tied: bool,
}

impl Shape {
    fn sizes(self) -> Sizes {
        let dense = |intermediate| FeedForwardConfig::Dense { intermediate };
        let moe = FeedForwardConfig::Moe {
            experts: 256,
            top_k: 8,
            intermediate: 512,
            shared_intermediate: 512,
        };
        let sizes = |layers, hidden, (query_heads, kv_heads), value_heads, feed_forward, tied| {
            Sizes { layers, hidden, query_heads, kv_heads, value_heads, feed_forward, tied }
        };
        match self {
            Self::B08 => sizes(24, 1024, (8, 2), 16, dense(3584), true),
            Self::B2 => sizes(24, 2048, (8, 2), 16, dense(6144), true),
            Self::B4 => sizes(32, 2560, (16, 4), 32, dense(9216), true),
            Self::B9 => sizes(32, 4096, (16, 4), 32, dense(12288), false),
            Self::B27 => sizes(64, 5120, (24, 4), 48, dense(17408), false),
            Self::B35A3 => sizes(40, 2048, (16, 2), 32, moe, false),
        }
    }

    /// The configuration, with fewer layers and tokens if asked for.
    ///
    /// # Errors
    /// If there would be no layer.
    pub(super) fn config(
        self,
        layers: Option<usize>,
        vocabulary: Option<usize>,
        mtp: bool,
    ) -> Result<ModelConfig> {
        let sizes = self.sizes();
        let layers = layers.unwrap_or(sizes.layers);
        if layers == 0 || layers > sizes.layers {
            bail!("layers: {layers} is outside 1..={}", sizes.layers);
        }
        let kind = |index: usize| match (index + 1) % INTERVAL {
            0 => LayerKind::Attention,
            _ => LayerKind::DeltaNet,
        };
        Ok(ModelConfig {
            family: match sizes.feed_forward {
                FeedForwardConfig::Dense { .. } => Family::HybridDense,
                FeedForwardConfig::Moe { .. } => Family::HybridMoe,
            },
            vocab_size: vocabulary.unwrap_or(VOCABULARY),
            hidden_size: sizes.hidden,
            layers: (0..layers).map(kind).collect(),
            rms_norm_eps: 1e-6,
            tied_embeddings: sizes.tied,
            attention: AttentionConfig {
                query_heads: sizes.query_heads,
                kv_heads: sizes.kv_heads,
                head_dim: 256,
                gated: true,
                qk_norm: true,
                rope: RopeConfig {
                    dims: 64,
                    theta: 1e7,
                    pairing: RopePairing::Half,
                    scaling: RopeScaling::None,
                },
            },
            delta_net: Some(DeltaNetConfig {
                key_heads: 16,
                value_heads: sizes.value_heads,
                key_dim: 128,
                value_dim: 128,
                conv_kernel: 4,
                head_map: HeadMap::Modulo,
            }),
            feed_forward: sizes.feed_forward,
            mtp,
            max_positions: 262_144,
        })
    }
}
