//! SwiGLU: dense, or routed experts with a gated shared one.

use super::Workspace;
use crate::backend::{Backend, Weight};
use crate::error::Result;
use crate::ops::{MoeCombine, Ops};

/// Weights of a feed-forward.
pub enum FeedForward<B: Backend> {
    /// Dense.
    Dense {
        /// `gate | up`, `[2I, H]`.
        gate_up: Weight<B>,
        /// `[H, I]`.
        down: Weight<B>,
    },
    /// Mixture of experts.
    Moe {
        /// `[E, H]`.
        router: Weight<B>,
        /// `E` times `gate | up`, `[2I, H]`.
        gate_up: Weight<B>,
        /// `E` times `[H, I]`.
        down: Weight<B>,
        /// Shared expert `gate | up`.
        shared_gate_up: Weight<B>,
        /// Shared expert `down`.
        shared_down: Weight<B>,
        /// `[1, H]`.
        shared_gate: Weight<B>,
    },
}

impl<B: Backend> FeedForward<B> {
    /// `work.delta = feed_forward(work.normed)`.
    pub(super) fn forward(&self, pass: &mut impl Ops<B>, work: &mut Workspace<B>) -> Result<()> {
        match self {
            Self::Dense { gate_up, down } => {
                let mut scratch = work.gate_up.columns(0..gate_up.rows)?;
                let mut inner = work.inner.columns(0..down.columns)?;
                pass.linear_silu_mul(&work.normed, gate_up, &mut scratch, &mut inner)?;
                pass.linear(&inner, down, &mut work.delta)
            }
            Self::Moe { router, gate_up, down, shared_gate_up, shared_down, shared_gate } => {
                let x = &work.normed;
                pass.linear(x, router, &mut work.moe.router_logits)?;
                let (ids, weights) = (&mut work.moe.ids, &mut work.moe.weights);
                pass.moe_route(&work.moe.router_logits, ids, weights)?;
                pass.moe_linear(x, gate_up, &work.moe.ids, &mut work.moe.gate_up)?;
                pass.silu_mul(&work.moe.gate_up, &mut work.moe.inner)?;
                pass.moe_linear(&work.moe.inner, down, &work.moe.ids, &mut work.moe.out)?;

                let mut scratch = work.gate_up.columns(0..shared_gate_up.rows)?;
                let mut inner = work.inner.columns(0..shared_down.columns)?;
                pass.linear_silu_mul(x, shared_gate_up, &mut scratch, &mut inner)?;
                pass.linear(&inner, shared_down, &mut work.moe.shared)?;
                pass.linear(x, shared_gate, &mut work.moe.shared_gate)?;
                pass.moe_combine(MoeCombine {
                    experts: &work.moe.out,
                    weights: &work.moe.weights,
                    shared: &work.moe.shared,
                    shared_gate: &work.moe.shared_gate,
                    out: &mut work.delta,
                })
            }
        }
    }
}
