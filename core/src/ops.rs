//! Trait [`Ops`]: every operation of the graph, its math and its shapes.
//!
//! The CPU reference (`reference/`) is the meaning of each op. All activations are f32. `R` = rows
//! (tokens) of the pass, `S` = sequences of the pass; both may be padded: a padded row has position
//! -1, a padded sequence has 0 rows and slot -1. What an op writes into padded rows is unspecified
//! but finite if its input is; it never touches KV or state for them.
//!
//! # The sequence table
//! `sequences` is i32 `[S, 4]`, one line per sequence: `first row`, `rows`, `length`, `slot`.
//! The rows of a sequence are consecutive; `length` counts its tokens up to and including this
//! pass, so row `first + i` has position `length - rows + i`. `slot` is its place in state tensors.
//! A sequence whose first position is 0 (`length == rows`) starts from a zero state whatever the
//! slot holds: nothing of an earlier request can leak.

use crate::backend::{Backend, Weight};
use crate::error::Result;
use crate::kv::KvPool;
use crate::tensor::{Heads, Tensor};

/// Fields of a line of the sequence table.
pub const SEQUENCE_FIELDS: usize = 4;

/// Which values of a head form a rotary pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RopePairing {
    /// `(i, i + n/2)`: every format but Llama GGUF.
    Half,
    /// `(2i, 2i + 1)`: Llama-type GGUF files, whose rows are permuted for it.
    Adjacent,
}

/// Which key head serves value head `i` of a delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadMap {
    /// `i / (value_heads / key_heads)`: safetensors order.
    Divide,
    /// `i % key_heads`: GGUF order.
    Modulo,
}

/// Arguments of [`Ops::rope`].
pub struct Rope<'a, B: Backend> {
    /// i32 `[R]`; rows with a negative position are left alone.
    pub positions: &'a Tensor<B>,
    /// f32 `[n/2]`: radians per position of each pair; `n <= dim` values are rotated.
    pub frequencies: &'a Tensor<B>,
    /// Pairing of values.
    pub pairing: RopePairing,
    /// Heads, rotated in place.
    pub x: &'a mut Heads<B>,
}

/// Arguments of [`Ops::store_kv`].
pub struct StoreKv<'a, B: Backend> {
    /// `[R, kv_heads * head_dim]` after norm and rotation.
    pub k: &'a Tensor<B>,
    /// `[R, kv_heads * head_dim]`.
    pub v: &'a Tensor<B>,
    /// i32 `[R]`: `block * BLOCK_TOKENS + offset` in the pool, negative = do not store.
    pub kv_rows: &'a Tensor<B>,
    /// Pool written.
    pub pool: &'a mut KvPool<B>,
}

/// Arguments of [`Ops::paged_attention`].
pub struct PagedAttention<'a, B: Backend> {
    /// Query heads, rotated. `query_heads` is a multiple of the pool's `kv_heads`; query head `h`
    /// reads KV head `h / (query_heads / kv_heads)`.
    pub q: &'a Heads<B>,
    /// Pool holding the keys and values of all rows, this pass's included.
    pub pool: &'a KvPool<B>,
    /// i32 `[S, 4]`: see the module.
    pub sequences: &'a Tensor<B>,
    /// i32 `[S, max_blocks]`: block ids of each sequence in order.
    pub block_table: &'a Tensor<B>,
    /// Factor on the scores, `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// `[R, query_heads * head_dim]`.
    pub out: &'a mut Tensor<B>,
}

/// Arguments of [`Ops::causal_conv1d`].
pub struct CausalConv1d<'a, B: Backend> {
    /// `[R, C]` raw projections.
    pub x: &'a Tensor<B>,
    /// f32 `[C, K]`, oldest tap first.
    pub weight: &'a Tensor<B>,
    /// f32 `[slots, K - 1, C]`, oldest row first: the last raw rows seen; updated.
    pub state: &'a mut Tensor<B>,
    /// i32 `[S, 4]`.
    pub sequences: &'a Tensor<B>,
    /// `[R, C]`.
    pub out: &'a mut Tensor<B>,
}

/// Arguments of [`Ops::gated_delta_rule`].
pub struct GatedDeltaRule<'a, B: Backend> {
    /// `[R, 2 * key_heads * key_dim + value_heads * value_dim]`: `q | k | v` after convolution and
    /// SiLU, not yet normalised.
    pub qkv: &'a Tensor<B>,
    /// `[R, 2 * value_heads]`: `b | a`, raw projections.
    pub ba: &'a Tensor<B>,
    /// f32 `[2, value_heads]`: `-exp(A_log)`, then `dt_bias`.
    pub head_constants: &'a Tensor<B>,
    /// f32 `[slots, value_heads, key_dim, value_dim]`, updated.
    pub state: &'a mut Tensor<B>,
    /// i32 `[S, 4]`.
    pub sequences: &'a Tensor<B>,
    /// Key heads.
    pub key_heads: usize,
    /// Key head of each value head.
    pub head_map: HeadMap,
    /// `[R, value_heads * value_dim]`.
    pub out: &'a mut Tensor<B>,
}

/// Which way [`Ops::copy_pages`] copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the row to the blocks.
    ToPages,
    /// From the blocks to the row.
    FromPages,
}

/// Arguments of [`Ops::copy_pages`]. Counts are in words of 4 bytes.
pub struct CopyPages<'a, B: Backend> {
    /// Any type, first dimension = rows of whole words, contiguous.
    pub state: &'a mut Tensor<B>,
    /// Pool whose blocks are read or written as plain bytes.
    pub pool: &'a mut KvPool<B>,
    /// i32 `[1 + n]`: row of `state`, then the blocks that make up the stream; negative = none.
    pub table: &'a Tensor<B>,
    /// First word in the row.
    pub state_start: usize,
    /// First word in the stream of the `n` blocks.
    pub page_start: usize,
    /// Words copied.
    pub words: usize,
    /// Which way.
    pub direction: CopyDirection,
}

/// Arguments of [`Ops::prepare_attention`].
pub struct PrepareAttention<'a, B: Backend> {
    /// Query heads, normed and rotated in place.
    pub q: &'a mut Heads<B>,
    /// Key heads, normed and rotated in place.
    pub k: &'a mut Heads<B>,
    /// `[R, kv_heads * head_dim]`.
    pub v: &'a Tensor<B>,
    /// `[head_dim]` weights of the query and key norm, or none.
    pub norms: Option<(&'a Tensor<B>, &'a Tensor<B>)>,
    /// Epsilon of the norms.
    pub eps: f32,
    /// i32 `[R]`.
    pub positions: &'a Tensor<B>,
    /// f32 `[n/2]`.
    pub frequencies: &'a Tensor<B>,
    /// Pairing of the rotation.
    pub pairing: RopePairing,
    /// i32 `[R]`.
    pub kv_rows: &'a Tensor<B>,
    /// Pool written.
    pub pool: &'a mut KvPool<B>,
}

/// Arguments of [`Ops::moe_combine`].
pub struct MoeCombine<'a, B: Backend> {
    /// `[R * k, H]`, outputs of the routed experts.
    pub experts: &'a Tensor<B>,
    /// f32 `[R, k]`.
    pub weights: &'a Tensor<B>,
    /// `[R, H]`, output of the shared expert.
    pub shared: &'a Tensor<B>,
    /// `[R, 1]`, raw gate of the shared expert.
    pub shared_gate: &'a Tensor<B>,
    /// `[R, H]`.
    pub out: &'a mut Tensor<B>,
}

/// The operations. Outputs never share a buffer with an input; what is updated in place is one
/// `&mut` argument. Every method fails with a shape error on arguments that do not fit, with
/// [`crate::Error::Unsupported`] on a variant the backend lacks, and never later than at recording.
#[allow(clippy::missing_errors_doc, reason = "stated once, above")]
pub trait Ops<B: Backend> {
    /// Marks a place in the recording; [`Backend::op_times`] gives the time between marks.
    fn mark(&mut self) -> Result<()> {
        Ok(())
    }

    /// `out[r] = table[ids[r]]`; zeros for a negative id. `ids` i32 `[R]`, `table` `[V, H]`,
    /// `out` `[R, H]`. An id of `V` or more is the caller's error; backends clamp it.
    fn embed(&mut self, ids: &Tensor<B>, table: &Weight<B>, out: &mut Tensor<B>) -> Result<()>;

    /// `out[i] = x[indices[i]]`; zeros for a negative index. `x` `[R, H]`, `indices` i32 `[N]`,
    /// `out` `[N, H]`.
    fn gather_rows(
        &mut self,
        x: &Tensor<B>,
        indices: &Tensor<B>,
        out: &mut Tensor<B>,
    ) -> Result<()>;

    /// `out = x W^T`. `x` `[R, in]`, `w` `[out, in]` (the parts of `w` side by side), `out`
    /// `[R, out]`.
    fn linear(&mut self, x: &Tensor<B>, w: &Weight<B>, out: &mut Tensor<B>) -> Result<()>;

    /// `sum += x`, both `[R, H]`.
    fn add(&mut self, x: &Tensor<B>, sum: &mut Tensor<B>) -> Result<()>;

    /// `out = x / sqrt(mean(x^2) + eps) * w` over each row. `x`, `out` `[R, H]`, `w` f32 `[H]`
    /// (the zero-centred weights of the hybrid family have their 1 added at load).
    fn rms_norm(
        &mut self,
        x: &Tensor<B>,
        w: &Tensor<B>,
        eps: f32,
        out: &mut Tensor<B>,
    ) -> Result<()>;

    /// [`Ops::rms_norm`] of every head in place; `w` f32 `[dim]` serves all heads.
    fn rms_norm_heads(&mut self, x: &mut Heads<B>, w: &Tensor<B>, eps: f32) -> Result<()>;

    /// `out = w * (x / sqrt(mean(x^2) + eps)) * silu(gate)` over groups of `dim = len(w)` values.
    /// `x`, `gate`, `out` `[R, heads * dim]`.
    fn gated_rms_norm(
        &mut self,
        x: &Tensor<B>,
        gate: &Tensor<B>,
        w: &Tensor<B>,
        eps: f32,
        out: &mut Tensor<B>,
    ) -> Result<()>;

    /// Rotates pairs `(u, v)` of each head by `t = position * frequency`:
    /// `u' = u cos t - v sin t`, `v' = v cos t + u sin t`. Angles in f32 or better.
    fn rope(&mut self, op: Rope<'_, B>) -> Result<()>;

    /// Stores keys and values at their place in the pool.
    fn store_kv(&mut self, op: StoreKv<'_, B>) -> Result<()>;

    /// `out = softmax(scale * q K^T) V` over positions `0..=position` of the row's sequence.
    fn paged_attention(&mut self, op: PagedAttention<'_, B>) -> Result<()>;

    /// `x *= sigmoid(gate)`. `gate` heads of `[R, ..]`, `x` `[R, heads * dim]`.
    fn sigmoid_mul(&mut self, gate: &Heads<B>, x: &mut Tensor<B>) -> Result<()>;

    /// `out_t[c] = silu(sum_j w[c, j] x_{t-K+1+j}[c])` per sequence; rows before the pass come from
    /// the state (zeros before position 0).
    fn causal_conv1d(&mut self, op: CausalConv1d<'_, B>) -> Result<()>;

    /// Gated delta rule (Yang et al., "Gated Delta Networks", 2024). Per value head and token, with
    /// `q = l2norm(q) / sqrt(key_dim)`, `k = l2norm(k)`, `beta = sigmoid(b)`,
    /// `g = -exp(A_log) * softplus(a + dt_bias)`:
    /// `S <- e^g S; delta = beta (v - S^T k); S <- S + k delta^T; out = S^T q`.
    /// `l2norm(u) = u / sqrt(sum(u^2) + 1e-6)`.
    fn gated_delta_rule(&mut self, op: GatedDeltaRule<'_, B>) -> Result<()>;

    /// `out = silu(gate) * up`. `gate_up` `[R, 2I]` = `gate | up`, `out` `[R, I]`.
    fn silu_mul(&mut self, gate_up: &Tensor<B>, out: &mut Tensor<B>) -> Result<()>;

    /// `p = softmax(logits)`; the `k` largest (ties: lower index), largest first, with weights
    /// renormalised to sum 1. `logits` `[R, E]`, `ids` i32 `[R, k]`, `weights` f32 `[R, k]`.
    fn moe_route(
        &mut self,
        logits: &Tensor<B>,
        ids: &mut Tensor<B>,
        weights: &mut Tensor<B>,
    ) -> Result<()>;

    /// `out[r * k + j] = W[ids[r, j]] x`. `x` is `[R, in]` (shared by the `k` experts of a row) or
    /// `[R * k, in]`; `w` holds `E` experts of `[out, in]`; `ids` i32 `[R, k]`, negative = zeros; `out`
    /// `[R * k, out]`.
    fn moe_linear(
        &mut self,
        x: &Tensor<B>,
        w: &Weight<B>,
        ids: &Tensor<B>,
        out: &mut Tensor<B>,
    ) -> Result<()>;

    /// `out[r] = sum_j weights[r, j] experts[r * k + j] + sigmoid(shared_gate[r]) shared[r]`.
    fn moe_combine(&mut self, op: MoeCombine<'_, B>) -> Result<()>;

    /// Index of the largest value of each row; the lowest index wins ties; -1 if the row holds a
    /// NaN. `logits` `[N, V]`, `out` i32 `[N]`.
    fn argmax(&mut self, logits: &Tensor<B>, out: &mut Tensor<B>) -> Result<()>;

    /// Copies whole rows of `state` (any shape, first dimension = slots): for each line `(from,
    /// to)` of `pairs` i32 `[N, 2]`, unless `from` is negative. Targets are distinct and no target
    /// is a source of another line.
    fn copy_state(&mut self, pairs: &Tensor<B>, state: &mut Tensor<B>) -> Result<()>;

    /// Copies a range of one row of `state` to or from a stream of pool blocks: word `i` of the range
    /// is word `(page_start + i) % w` of block `table[1 + (page_start + i) / w]`, `w` words a block.
    /// A negative row or block is skipped.
    fn copy_pages(&mut self, op: CopyPages<'_, B>) -> Result<()>;

    // Fused ops: the default body is the meaning, an override is only faster.

    /// `sum += x; out = rms_norm(sum)`.
    fn add_rms_norm(
        &mut self,
        x: &Tensor<B>,
        sum: &mut Tensor<B>,
        w: &Tensor<B>,
        eps: f32,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.add(x, sum)?;
        self.rms_norm(sum, w, eps, out)
    }

    /// `out = silu(x Wg^T) * (x Wu^T)` for `w` = `gate | up`. `scratch` `[R, 2I]` may hold the
    /// projections; its content afterwards is unspecified.
    fn linear_silu_mul(
        &mut self,
        x: &Tensor<B>,
        w: &Weight<B>,
        scratch: &mut Tensor<B>,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.linear(x, w, scratch)?;
        self.silu_mul(scratch, out)
    }

    /// Norms of query and key heads, rotation, and the store into the pool.
    fn prepare_attention(&mut self, op: PrepareAttention<'_, B>) -> Result<()> {
        let PrepareAttention {
            q,
            k,
            v,
            norms,
            eps,
            positions,
            frequencies,
            pairing,
            kv_rows,
            pool,
        } = op;
        if let Some((q_norm, k_norm)) = norms {
            self.rms_norm_heads(q, q_norm, eps)?;
            self.rms_norm_heads(k, k_norm, eps)?;
        }
        self.rope(Rope { positions, frequencies, pairing, x: q })?;
        self.rope(Rope { positions, frequencies, pairing, x: k })?;
        self.store_kv(StoreKv { k: &k.tensor, v, kv_rows, pool })
    }
}
