//! Full attention: one projection to `q (gate) | k | v`, head norms, rotation, paged KV, softmax,
//! output gate, output projection.

use super::{Model, StepInputs, Workspace};
use crate::backend::{Backend, Weight};
use crate::error::Result;
use crate::kv::KvPool;
use crate::ops::{Ops, PagedAttention, PrepareAttention};
use crate::tensor::{Heads, Tensor};

/// Weights of an attention mixer.
pub struct Attention<B: Backend> {
    /// `q | k | v` stacked; per query head the query, then its gate if the model gates.
    pub qkv: Weight<B>,
    /// `[H, query_heads * head_dim]`.
    pub o: Weight<B>,
    /// Query and key norm `[head_dim]`.
    pub norms: Option<(Tensor<B>, Tensor<B>)>,
}

impl<B: Backend> Attention<B> {
    /// `work.delta = attention(work.normed)`.
    pub(super) fn forward(
        &self,
        pass: &mut impl Ops<B>,
        model: &Model<B>,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
        pool: &mut KvPool<B>,
    ) -> Result<()> {
        let config = &model.config.attention;
        let (dim, heads) = (config.head_dim, config.query_heads);
        let head_stride = if config.gated { 2 * dim } else { dim };
        let (queries, keys) = (heads * head_stride, config.kv_heads * dim);

        let mut packed = work.packed.columns(0..queries + 2 * keys)?;
        pass.linear(&work.normed, &self.qkv, &mut packed)?;
        let mut q = Heads::strided(packed.columns(0..queries)?, heads, head_stride, dim)?;
        let mut k = Heads::packed(packed.columns(queries..queries + keys)?, config.kv_heads, dim)?;
        let v = packed.columns(queries + keys..queries + 2 * keys)?;
        pass.prepare_attention(PrepareAttention {
            q: &mut q,
            k: &mut k,
            v: &v,
            norms: self.norms.as_ref().map(|(q, k)| (q, k)),
            eps: model.config.rms_norm_eps,
            positions: &inputs.positions,
            frequencies: &model.frequencies,
            pairing: config.rope.pairing,
            kv_rows: &inputs.kv_rows,
            pool,
        })?;
        let mut mixed = work.mixed.columns(0..heads * dim)?;
        pass.paged_attention(PagedAttention {
            q: &q,
            pool,
            sequences: &inputs.sequences,
            block_table: &inputs.block_table,
            scale: 1.0 / (dim as f32).sqrt(),
            out: &mut mixed,
        })?;
        if config.gated {
            let gate = Heads::strided(packed.columns(dim..queries)?, heads, head_stride, dim)?;
            pass.sigmoid_mul(&gate, &mut mixed)?;
        }
        pass.linear(&mixed, &self.o, &mut work.delta)
    }
}
