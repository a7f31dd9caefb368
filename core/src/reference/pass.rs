//! The recording of the CPU backend: shapes are checked here, the loops live in the op files.

use super::{Cpu, Step};
use super::{
    add, argmax, causal_conv1d, copy_pages, copy_state, embed, gated_delta_rule, linear, moe, norm,
    paged_attention, rope, silu, store_kv,
};
use crate::backend::Weight;
use crate::check;
use crate::error::Result;
use crate::ops::{
    CausalConv1d, CopyPages, GatedDeltaRule, MoeCombine, Ops, PagedAttention, Rope, StoreKv,
};
use crate::tensor::{Heads, Tensor};

/// An open recording.
#[derive(Default)]
pub struct CpuPass {
    pub(super) steps: Vec<Step>,
    pub(super) marks: Vec<usize>,
}

impl CpuPass {
    fn push(&mut self, step: impl Fn() -> Result<()> + Send + Sync + 'static) {
        self.steps.push(Box::new(step));
    }
}

impl Ops<Cpu> for CpuPass {
    fn mark(&mut self) -> Result<()> {
        self.marks.push(self.steps.len());
        Ok(())
    }

    fn embed(
        &mut self,
        ids: &Tensor<Cpu>,
        table: &Weight<Cpu>,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        check::embed(ids, table, out)?;
        let (ids, table, out) = (ids.clone(), table.clone(), out.clone());
        self.push(move || embed::embed(&ids, &table, &out));
        Ok(())
    }

    fn gather_rows(
        &mut self,
        x: &Tensor<Cpu>,
        indices: &Tensor<Cpu>,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        check::gather_rows(x, indices, out)?;
        let (x, indices, out) = (x.clone(), indices.clone(), out.clone());
        self.push(move || embed::gather_rows(&x, &indices, &out));
        Ok(())
    }

    fn linear(&mut self, x: &Tensor<Cpu>, w: &Weight<Cpu>, out: &mut Tensor<Cpu>) -> Result<()> {
        check::linear(x, w, out)?;
        let (x, w, out) = (x.clone(), w.clone(), out.clone());
        self.push(move || linear::linear(&x, &w, &out));
        Ok(())
    }

    fn add(&mut self, x: &Tensor<Cpu>, sum: &mut Tensor<Cpu>) -> Result<()> {
        check::same("add", x, sum)?;
        let (x, sum) = (x.clone(), sum.clone());
        self.push(move || add::add(&x, &sum));
        Ok(())
    }

    fn rms_norm(
        &mut self,
        x: &Tensor<Cpu>,
        w: &Tensor<Cpu>,
        eps: f32,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        check::rms_norm(x, w, out)?;
        let (x, w, out) = (x.clone(), w.clone(), out.clone());
        self.push(move || norm::rms_norm(&x, &w, eps, &out));
        Ok(())
    }

    fn rms_norm_heads(&mut self, x: &mut Heads<Cpu>, w: &Tensor<Cpu>, eps: f32) -> Result<()> {
        check::rms_norm_heads(x, w)?;
        let (x, w) = (x.clone(), w.clone());
        self.push(move || norm::rms_norm_heads(&x, &w, eps));
        Ok(())
    }

    fn gated_rms_norm(
        &mut self,
        x: &Tensor<Cpu>,
        gate: &Tensor<Cpu>,
        w: &Tensor<Cpu>,
        eps: f32,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        check::gated_rms_norm(x, gate, w, out)?;
        let (x, gate, w, out) = (x.clone(), gate.clone(), w.clone(), out.clone());
        self.push(move || norm::gated_rms_norm(&x, &gate, &w, eps, &out));
        Ok(())
    }

    fn rope(&mut self, op: Rope<'_, Cpu>) -> Result<()> {
        check::rope(&op)?;
        let (positions, frequencies) = (op.positions.clone(), op.frequencies.clone());
        let (pairing, x) = (op.pairing, op.x.clone());
        self.push(move || rope::rope(&positions, &frequencies, pairing, &x));
        Ok(())
    }

    fn store_kv(&mut self, op: StoreKv<'_, Cpu>) -> Result<()> {
        check::store_kv(&op)?;
        let (k, v) = (op.k.clone(), op.v.clone());
        let (kv_rows, pool) = (op.kv_rows.clone(), op.pool.clone());
        self.push(move || store_kv::store_kv(&k, &v, &kv_rows, &pool));
        Ok(())
    }

    fn paged_attention(&mut self, op: PagedAttention<'_, Cpu>) -> Result<()> {
        let dims = check::paged_attention(&op)?;
        let (q, pool, scale) = (op.q.clone(), op.pool.clone(), op.scale);
        let (sequences, table) = (op.sequences.clone(), op.block_table.clone());
        let out = op.out.clone();
        self.push(move || {
            paged_attention::paged_attention(&q, &pool, &sequences, &table, scale, dims, &out)
        });
        Ok(())
    }

    fn sigmoid_mul(&mut self, gate: &Heads<Cpu>, x: &mut Tensor<Cpu>) -> Result<()> {
        check::sigmoid_mul(gate, x)?;
        let (gate, x) = (gate.clone(), x.clone());
        self.push(move || silu::sigmoid_mul(&gate, &x));
        Ok(())
    }

    fn causal_conv1d(&mut self, op: CausalConv1d<'_, Cpu>) -> Result<()> {
        let dims = check::causal_conv1d(&op)?;
        let (x, weight, state) = (op.x.clone(), op.weight.clone(), op.state.clone());
        let (sequences, out) = (op.sequences.clone(), op.out.clone());
        self.push(move || {
            causal_conv1d::causal_conv1d(&x, &weight, &state, &sequences, dims, &out)
        });
        Ok(())
    }

    fn gated_delta_rule(&mut self, op: GatedDeltaRule<'_, Cpu>) -> Result<()> {
        let dims = check::gated_delta_rule(&op)?;
        let tensors = gated_delta_rule::Tensors {
            qkv: op.qkv.clone(),
            ba: op.ba.clone(),
            head_constants: op.head_constants.clone(),
            state: op.state.clone(),
            sequences: op.sequences.clone(),
            out: op.out.clone(),
        };
        let head_map = op.head_map;
        self.push(move || gated_delta_rule::gated_delta_rule(&tensors, head_map, dims));
        Ok(())
    }

    fn silu_mul(&mut self, gate_up: &Tensor<Cpu>, out: &mut Tensor<Cpu>) -> Result<()> {
        check::silu_mul(gate_up, out)?;
        let (gate_up, out) = (gate_up.clone(), out.clone());
        self.push(move || silu::silu_mul(&gate_up, &out));
        Ok(())
    }

    fn moe_route(
        &mut self,
        logits: &Tensor<Cpu>,
        ids: &mut Tensor<Cpu>,
        weights: &mut Tensor<Cpu>,
    ) -> Result<()> {
        check::moe_route(logits, ids, weights)?;
        let (logits, ids, weights) = (logits.clone(), ids.clone(), weights.clone());
        self.push(move || moe::moe_route(&logits, &ids, &weights));
        Ok(())
    }

    fn moe_linear(
        &mut self,
        x: &Tensor<Cpu>,
        w: &Weight<Cpu>,
        ids: &Tensor<Cpu>,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        let (_, k, shared) = check::moe_linear(x, w, ids, out)?;
        let (x, w, ids, out) = (x.clone(), w.clone(), ids.clone(), out.clone());
        self.push(move || linear::moe_linear(&x, &w, &ids, k, shared, &out));
        Ok(())
    }

    fn moe_combine(&mut self, op: MoeCombine<'_, Cpu>) -> Result<()> {
        check::moe_combine(&op)?;
        let (experts, weights) = (op.experts.clone(), op.weights.clone());
        let (shared, gate, out) = (op.shared.clone(), op.shared_gate.clone(), op.out.clone());
        self.push(move || moe::moe_combine(&experts, &weights, &shared, &gate, &out));
        Ok(())
    }

    fn argmax(&mut self, logits: &Tensor<Cpu>, out: &mut Tensor<Cpu>) -> Result<()> {
        check::argmax(logits, out)?;
        let (logits, out) = (logits.clone(), out.clone());
        self.push(move || argmax::argmax(&logits, &out));
        Ok(())
    }

    fn copy_state(&mut self, pairs: &Tensor<Cpu>, state: &mut Tensor<Cpu>) -> Result<()> {
        check::copy_state(pairs, state)?;
        let (pairs, state) = (pairs.clone(), state.clone());
        self.push(move || copy_state::copy_state(&pairs, &state));
        Ok(())
    }

    fn copy_pages(&mut self, op: CopyPages<'_, Cpu>) -> Result<()> {
        let sizes = check::copy_pages(&op)?;
        let (state, pages) = (op.state.clone(), op.pool.pages.clone());
        let table = op.table.clone();
        let range = copy_pages::Range {
            state_start: op.state_start,
            page_start: op.page_start,
            words: op.words,
            direction: op.direction,
        };
        self.push(move || copy_pages::copy_pages(&state, &pages, &table, sizes, range));
        Ok(())
    }
}
