//! The limits of a [`ModelConfig`], checked once for every container.

use super::{Family, FeedForwardConfig, LayerKind, ModelConfig, RopeConfig, RopeScaling};
use crate::error::{Error, Result};
use std::path::Path;

/// Most layers of a model.
pub(super) const MAX_LAYERS: usize = 4096;
/// Most values of a residual stream.
const MAX_HIDDEN: usize = 1 << 20;
/// Most values inside a feed-forward network.
const MAX_INTERMEDIATE: usize = 1 << 22;
/// Most rows of an embedding.
const MAX_VOCAB: usize = 1 << 24;
/// Most heads, and most values of a head.
const MAX_HEADS: usize = 1 << 14;
/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;
/// Positions are 32-bit signed integers.
const MAX_POSITIONS: usize = i32::MAX as usize;

/// Checks that belong to one file.
struct Checker<'a> {
    path: &'a Path,
}

impl Checker<'_> {
    fn require(&self, holds: bool, field: &str, reason: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(Error::format(self.path, field, reason())) }
    }

    fn size(&self, field: &str, value: usize, most: usize) -> Result<()> {
        self.require((1..=most).contains(&value), field, || {
            format!("{value} is outside 1 to {most}")
        })
    }

    fn multiple(&self, field: &str, value: usize, of: usize, what: &str) -> Result<()> {
        self.require(of != 0 && value.is_multiple_of(of), field, || {
            format!("{value} is not a multiple of the {of} {what}")
        })
    }

    fn positive(&self, field: &str, value: f64) -> Result<()> {
        self.require(value.is_finite() && value > 0.0, field, || {
            format!("{value} is not a positive number")
        })
    }
}

/// A layer count small enough to allocate a list for.
pub(super) fn layer_count(path: &Path, field: &str, layers: usize) -> Result<usize> {
    Checker { path }.size(field, layers, MAX_LAYERS)?;
    Ok(layers)
}

impl ModelConfig {
    /// Checks every limit the graph, the backends and the memory plans rely on. `path` is the file
    /// that the numbers come from.
    ///
    /// # Errors
    /// [`Error::Format`] naming the field and its value, [`Error::Unsupported`] for a layer list
    /// that forge cannot run.
    pub fn check(&self, path: &Path) -> Result<()> {
        let check = Checker { path };
        check.size("vocab_size", self.vocab_size, MAX_VOCAB)?;
        check.size("hidden_size", self.hidden_size, MAX_HIDDEN)?;
        check.size("layers", self.layers.len(), MAX_LAYERS)?;
        check.size("max_positions", self.max_positions, MAX_POSITIONS)?;
        let eps = self.rms_norm_eps;
        check.require(eps > 0.0 && eps < 1.0, "rms_norm_eps", || {
            format!("{eps} is outside 0 to 1")
        })?;
        self.check_attention(&check)?;
        self.check_delta_net(&check)?;
        self.check_feed_forward(&check)?;
        let moe = matches!(self.feed_forward, FeedForwardConfig::Moe { .. });
        check.require(moe == (self.family == Family::HybridMoe), "feed_forward", || {
            format!("the family is {}", self.family)
        })?;
        check.require(!self.mtp || self.family.is_hybrid(), "mtp", || {
            format!("family {} has no MTP block", self.family)
        })
    }

    fn check_attention(&self, check: &Checker<'_>) -> Result<()> {
        let attention = &self.attention;
        check.size("attention.query_heads", attention.query_heads, MAX_HEADS)?;
        check.size("attention.kv_heads", attention.kv_heads, MAX_HEADS)?;
        check.size("attention.head_dim", attention.head_dim, MAX_HEADS)?;
        check.multiple(
            "attention.query_heads",
            attention.query_heads,
            attention.kv_heads,
            "key/value heads",
        )?;
        if self.attention_layers() == 0 {
            return Err(Error::unsupported(
                format!("a model without attention layers ({})", check.path.display()),
                format!("all {} layers are delta net layers", self.layers.len()),
            ));
        }
        check_rope(check, &attention.rope, attention.head_dim)
    }

    fn check_delta_net(&self, check: &Checker<'_>) -> Result<()> {
        let Some(delta) = &self.delta_net else {
            let first = self.layers.iter().position(|kind| *kind == LayerKind::DeltaNet);
            return check.require(first.is_none(), "layers", || {
                format!(
                    "layer {} is a delta net layer, family {} has none",
                    first.unwrap_or_default(),
                    self.family
                )
            });
        };
        check.require(self.family.is_hybrid(), "delta_net", || {
            format!("family {} has no delta net layers", self.family)
        })?;
        check.size("delta_net.key_heads", delta.key_heads, MAX_HEADS)?;
        check.size("delta_net.value_heads", delta.value_heads, MAX_HEADS)?;
        check.size("delta_net.key_dim", delta.key_dim, MAX_HEADS)?;
        check.size("delta_net.value_dim", delta.value_dim, MAX_HEADS)?;
        check.multiple("delta_net.value_heads", delta.value_heads, delta.key_heads, "key heads")?;
        check.require((2..=64).contains(&delta.conv_kernel), "delta_net.conv_kernel", || {
            format!("{} is outside 2 to 64", delta.conv_kernel)
        })
    }

    fn check_feed_forward(&self, check: &Checker<'_>) -> Result<()> {
        match self.feed_forward {
            FeedForwardConfig::Dense { intermediate } => {
                check.size("feed_forward.intermediate", intermediate, MAX_INTERMEDIATE)
            }
            FeedForwardConfig::Moe { experts, top_k, intermediate, shared_intermediate } => {
                check.size("feed_forward.experts", experts, MAX_EXPERTS)?;
                check.require((1..=experts).contains(&top_k), "feed_forward.top_k", || {
                    format!("{top_k} is outside 1 to the {experts} experts")
                })?;
                check.size("feed_forward.intermediate", intermediate, MAX_INTERMEDIATE)?;
                check.size(
                    "feed_forward.shared_intermediate",
                    shared_intermediate,
                    MAX_INTERMEDIATE,
                )
            }
        }
    }
}

fn check_rope(check: &Checker<'_>, rope: &RopeConfig, head_dim: usize) -> Result<()> {
    check.size("attention.rope.dims", rope.dims, head_dim)?;
    check.multiple("attention.rope.dims", rope.dims, 2, "values of a pair")?;
    check.positive("attention.rope.theta", rope.theta)?;
    match rope.scaling {
        RopeScaling::None => Ok(()),
        RopeScaling::Linear { factor } => check.positive("attention.rope.scaling.factor", factor),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_positions,
        } => {
            check.positive("attention.rope.scaling.factor", factor)?;
            check.positive("attention.rope.scaling.low_freq_factor", low)?;
            check.require(
                high.is_finite() && high > low,
                "attention.rope.scaling.high_freq_factor",
                || format!("{high} is not above low_freq_factor {low}"),
            )?;
            check.size(
                "attention.rope.scaling.original_max_positions",
                original_max_positions,
                MAX_POSITIONS,
            )
        }
    }
}
