//! Where the time of a pass goes: [`Metered`] wraps an open recording, marks every op of the graph
//! and counts the bytes it must move.

use crate::backend::{Backend, Weight};
use crate::error::Result;
use crate::ops::{
    CausalConv1d, CopyPages, GatedDeltaRule, MoeCombine, Ops, PagedAttention, PrepareAttention,
    Rope, StoreKv,
};
use crate::tensor::{Heads, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// An op of a recorded pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRecord {
    /// Name.
    pub op: &'static str,
    /// Bytes read and written if every input is read once and every output written once.
    pub bytes: u64,
}

/// An op of a pass with its time; equal names are summed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpTotal {
    /// Name.
    pub op: &'static str,
    /// Calls.
    pub calls: usize,
    /// Bytes.
    pub bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

/// Sums records and times by op, longest first.
pub fn totals(records: &[OpRecord], seconds: &[f64]) -> Vec<OpTotal> {
    let mut sums: BTreeMap<&'static str, OpTotal> = BTreeMap::new();
    for (record, seconds) in records.iter().zip(seconds) {
        let new = OpTotal { op: record.op, calls: 0, bytes: 0, seconds: 0.0 };
        let total = sums.entry(record.op).or_insert(new);
        total.calls += 1;
        total.bytes += record.bytes;
        total.seconds += seconds;
    }
    let mut all: Vec<OpTotal> = sums.into_values().collect();
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    all
}

/// A recording that marks each op. `context` is the number of KV tokens that attention will read,
/// summed over the sequences: a recording does not know it.
pub struct Metered<'a, B: Backend, P: Ops<B>> {
    pass: &'a mut P,
    context: usize,
    records: Vec<OpRecord>,
    backend: PhantomData<B>,
}

impl<'a, B: Backend, P: Ops<B>> Metered<'a, B, P> {
    /// Wraps an open recording.
    pub fn new(pass: &'a mut P, context: usize) -> Self {
        Self { pass, context, records: Vec::new(), backend: PhantomData }
    }

    /// The ops recorded, in the order of their marks.
    ///
    /// # Errors
    /// Device errors of the closing mark.
    pub fn finish(self) -> Result<Vec<OpRecord>> {
        self.pass.mark()?;
        Ok(self.records)
    }

    fn note(&mut self, op: &'static str, bytes: u64) -> Result<()> {
        self.records.push(OpRecord { op, bytes });
        self.pass.mark()
    }
}

fn size<B: Backend>(tensor: &Tensor<B>) -> u64 {
    (tensor.shape.len() * tensor.dtype.bytes()) as u64
}

fn heads<B: Backend>(x: &Heads<B>) -> u64 {
    (x.rows() * x.heads * x.dim * 4) as u64
}

/// State of the sequences of a pass: read and written once.
fn state<B: Backend>(state: &Tensor<B>, sequences: &Tensor<B>) -> u64 {
    2 * (state.row_len() * state.dtype.bytes() * sequences.rows()) as u64
}

impl<B: Backend, P: Ops<B>> Ops<B> for Metered<'_, B, P> {
    fn mark(&mut self) -> Result<()> {
        self.pass.mark()
    }

    fn embed(&mut self, ids: &Tensor<B>, table: &Weight<B>, out: &mut Tensor<B>) -> Result<()> {
        self.note("embed", 2 * size(out))?;
        self.pass.embed(ids, table, out)
    }

    fn gather_rows(
        &mut self,
        x: &Tensor<B>,
        indices: &Tensor<B>,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.note("gather_rows", 2 * size(out))?;
        self.pass.gather_rows(x, indices, out)
    }

    fn linear(&mut self, x: &Tensor<B>, w: &Weight<B>, out: &mut Tensor<B>) -> Result<()> {
        self.note("linear", w.bytes + size(x) + size(out))?;
        self.pass.linear(x, w, out)
    }

    fn add(&mut self, x: &Tensor<B>, sum: &mut Tensor<B>) -> Result<()> {
        self.note("add", 3 * size(x))?;
        self.pass.add(x, sum)
    }

    fn rms_norm(
        &mut self,
        x: &Tensor<B>,
        w: &Tensor<B>,
        eps: f32,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.note("rms_norm", 2 * size(x) + size(w))?;
        self.pass.rms_norm(x, w, eps, out)
    }

    fn rms_norm_heads(&mut self, x: &mut Heads<B>, w: &Tensor<B>, eps: f32) -> Result<()> {
        self.note("rms_norm_heads", 2 * heads(x) + size(w))?;
        self.pass.rms_norm_heads(x, w, eps)
    }

    fn gated_rms_norm(
        &mut self,
        x: &Tensor<B>,
        gate: &Tensor<B>,
        w: &Tensor<B>,
        eps: f32,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.note("gated_rms_norm", 3 * size(x) + size(w))?;
        self.pass.gated_rms_norm(x, gate, w, eps, out)
    }

    fn rope(&mut self, op: Rope<'_, B>) -> Result<()> {
        self.note("rope", 2 * heads(op.x))?;
        self.pass.rope(op)
    }

    fn store_kv(&mut self, op: StoreKv<'_, B>) -> Result<()> {
        self.note("store_kv", 3 * size(op.k))?;
        self.pass.store_kv(op)
    }

    fn paged_attention(&mut self, op: PagedAttention<'_, B>) -> Result<()> {
        let token = op.pool.layout.block_bytes() / crate::kv::BLOCK_TOKENS;
        self.note("paged_attention", (self.context * token) as u64 + heads(op.q) + size(op.out))?;
        self.pass.paged_attention(op)
    }

    fn sigmoid_mul(&mut self, gate: &Heads<B>, x: &mut Tensor<B>) -> Result<()> {
        self.note("sigmoid_mul", 3 * size(x))?;
        self.pass.sigmoid_mul(gate, x)
    }

    fn causal_conv1d(&mut self, op: CausalConv1d<'_, B>) -> Result<()> {
        let bytes = 2 * size(op.x) + size(op.weight) + state(op.state, op.sequences);
        self.note("causal_conv1d", bytes)?;
        self.pass.causal_conv1d(op)
    }

    fn gated_delta_rule(&mut self, op: GatedDeltaRule<'_, B>) -> Result<()> {
        let bytes = size(op.qkv) + size(op.ba) + size(op.out) + state(op.state, op.sequences);
        self.note("gated_delta_rule", bytes)?;
        self.pass.gated_delta_rule(op)
    }

    fn silu_mul(&mut self, gate_up: &Tensor<B>, out: &mut Tensor<B>) -> Result<()> {
        self.note("silu_mul", size(gate_up) + size(out))?;
        self.pass.silu_mul(gate_up, out)
    }

    fn moe_route(
        &mut self,
        logits: &Tensor<B>,
        ids: &mut Tensor<B>,
        weights: &mut Tensor<B>,
    ) -> Result<()> {
        self.note("moe_route", size(logits) + 2 * size(ids))?;
        self.pass.moe_route(logits, ids, weights)
    }

    fn moe_linear(
        &mut self,
        x: &Tensor<B>,
        w: &Weight<B>,
        ids: &Tensor<B>,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        let routed = ids.shape.len().min(w.experts) as u64;
        let weights = w.bytes / w.experts.max(1) as u64 * routed;
        self.note("moe_linear", weights + size(x) + size(out))?;
        self.pass.moe_linear(x, w, ids, out)
    }

    fn moe_combine(&mut self, op: MoeCombine<'_, B>) -> Result<()> {
        self.note("moe_combine", size(op.experts) + 2 * size(op.shared))?;
        self.pass.moe_combine(op)
    }

    fn argmax(&mut self, logits: &Tensor<B>, out: &mut Tensor<B>) -> Result<()> {
        self.note("argmax", size(logits))?;
        self.pass.argmax(logits, out)
    }

    fn copy_state(&mut self, pairs: &Tensor<B>, state: &mut Tensor<B>) -> Result<()> {
        let row = (state.row_len() * state.dtype.bytes()) as u64;
        self.note("copy_state", 2 * pairs.rows() as u64 * row)?;
        self.pass.copy_state(pairs, state)
    }

    fn copy_pages(&mut self, op: CopyPages<'_, B>) -> Result<()> {
        self.note("copy_pages", 8 * op.words as u64)?;
        self.pass.copy_pages(op)
    }

    fn add_rms_norm(
        &mut self,
        x: &Tensor<B>,
        sum: &mut Tensor<B>,
        w: &Tensor<B>,
        eps: f32,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.note("add_rms_norm", 4 * size(x) + size(w))?;
        self.pass.add_rms_norm(x, sum, w, eps, out)
    }

    fn linear_silu_mul(
        &mut self,
        x: &Tensor<B>,
        w: &Weight<B>,
        scratch: &mut Tensor<B>,
        out: &mut Tensor<B>,
    ) -> Result<()> {
        self.note("linear_silu_mul", w.bytes + size(x) + size(out))?;
        self.pass.linear_silu_mul(x, w, scratch, out)
    }

    fn prepare_attention(&mut self, op: PrepareAttention<'_, B>) -> Result<()> {
        self.note("prepare_attention", 2 * (heads(op.q) + heads(op.k)) + 2 * size(op.v))?;
        self.pass.prepare_attention(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_by_op_and_put_the_longest_first() {
        let record = |op, bytes| OpRecord { op, bytes };
        let records = [record("add", 8), record("linear", 100), record("add", 8)];
        let all = totals(&records, &[1.0, 5.0, 2.0]);
        assert_eq!(all[0], OpTotal { op: "linear", calls: 1, bytes: 100, seconds: 5.0 });
        assert_eq!(all[1], OpTotal { op: "add", calls: 2, bytes: 16, seconds: 3.0 });
    }
}
