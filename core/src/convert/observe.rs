//! Runs a pass op by op on the CPU and looks at the inputs of every matrix.

use crate::backend::{Backend, Weight, upload_i32};
use crate::error::Result;
use crate::ops::{
    CausalConv1d, CopyPages, GatedDeltaRule, MoeCombine, Ops, PagedAttention, Rope, StoreKv,
};
use crate::reference::{Cpu, CpuPass};
use crate::tensor::{DType, Heads, Shape, Tensor};

/// Told of the inputs of a matrix: rows of `weight.columns` values. With experts, `experts[r]` is
/// the expert that row `r` is for; a negative one is for none.
pub(super) type Observer<'a> =
    &'a mut dyn FnMut(&Weight<Cpu>, &[f32], Option<&[i32]>) -> Result<()>;

/// Ops that take effect at once. A recording knows no values; this one does.
pub(super) struct Observed<'a> {
    backend: &'a Cpu,
    observer: Observer<'a>,
}

impl<'a> Observed<'a> {
    pub(super) fn new(backend: &'a Cpu, observer: Observer<'a>) -> Self {
        Self { backend, observer }
    }

    fn run(&self, op: impl FnOnce(&mut CpuPass) -> Result<()>) -> Result<()> {
        self.backend.submit(&self.backend.record(op)?)
    }

    /// All values of a tensor, whose rows may lie apart.
    fn values(&self, x: &Tensor<Cpu>) -> Result<Vec<f32>> {
        let mut values = vec![0.0f32; x.shape.len()];
        let mut copy = x.clone();
        if !x.is_contiguous() {
            let rows: Vec<i32> = (0..x.rows() as i32).collect();
            let indices = upload_i32(self.backend, &rows, Shape::new(&[rows.len()]))?;
            copy = self.backend.zeros(Shape::new(&[x.rows(), x.row_len()]), DType::F32)?;
            self.run(|pass| pass.gather_rows(x, &indices, &mut copy))?;
        }
        self.backend.read(&copy, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }
}

impl Ops<Cpu> for Observed<'_> {
    fn embed(
        &mut self,
        ids: &Tensor<Cpu>,
        table: &Weight<Cpu>,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        self.run(|pass| pass.embed(ids, table, out))
    }

    fn gather_rows(
        &mut self,
        x: &Tensor<Cpu>,
        indices: &Tensor<Cpu>,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        self.run(|pass| pass.gather_rows(x, indices, out))
    }

    fn linear(&mut self, x: &Tensor<Cpu>, w: &Weight<Cpu>, out: &mut Tensor<Cpu>) -> Result<()> {
        let values = self.values(x)?;
        (self.observer)(w, &values, None)?;
        self.run(|pass| pass.linear(x, w, out))
    }

    fn add(&mut self, x: &Tensor<Cpu>, sum: &mut Tensor<Cpu>) -> Result<()> {
        self.run(|pass| pass.add(x, sum))
    }

    fn rms_norm(
        &mut self,
        x: &Tensor<Cpu>,
        w: &Tensor<Cpu>,
        eps: f32,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        self.run(|pass| pass.rms_norm(x, w, eps, out))
    }

    fn rms_norm_heads(&mut self, x: &mut Heads<Cpu>, w: &Tensor<Cpu>, eps: f32) -> Result<()> {
        self.run(|pass| pass.rms_norm_heads(x, w, eps))
    }

    fn gated_rms_norm(
        &mut self,
        x: &Tensor<Cpu>,
        gate: &Tensor<Cpu>,
        w: &Tensor<Cpu>,
        eps: f32,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        self.run(|pass| pass.gated_rms_norm(x, gate, w, eps, out))
    }

    fn rope(&mut self, op: Rope<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.rope(op))
    }

    fn store_kv(&mut self, op: StoreKv<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.store_kv(op))
    }

    fn paged_attention(&mut self, op: PagedAttention<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.paged_attention(op))
    }

    fn sigmoid_mul(&mut self, gate: &Heads<Cpu>, x: &mut Tensor<Cpu>) -> Result<()> {
        self.run(|pass| pass.sigmoid_mul(gate, x))
    }

    fn causal_conv1d(&mut self, op: CausalConv1d<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.causal_conv1d(op))
    }

    fn gated_delta_rule(&mut self, op: GatedDeltaRule<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.gated_delta_rule(op))
    }

    fn silu_mul(&mut self, gate_up: &Tensor<Cpu>, out: &mut Tensor<Cpu>) -> Result<()> {
        self.run(|pass| pass.silu_mul(gate_up, out))
    }

    fn moe_route(
        &mut self,
        logits: &Tensor<Cpu>,
        ids: &mut Tensor<Cpu>,
        weights: &mut Tensor<Cpu>,
    ) -> Result<()> {
        self.run(|pass| pass.moe_route(logits, ids, weights))
    }

    fn moe_linear(
        &mut self,
        x: &Tensor<Cpu>,
        w: &Weight<Cpu>,
        ids: &Tensor<Cpu>,
        out: &mut Tensor<Cpu>,
    ) -> Result<()> {
        let mut experts = vec![0i32; ids.shape.len()];
        self.backend.read(ids, bytemuck::cast_slice_mut(&mut experts))?;
        let mut values = self.values(x)?;
        let (rows, columns) = (x.rows().max(1), x.row_len().max(1));
        if rows < experts.len() {
            // One row for all experts of a token.
            let each = experts.len() / rows;
            let repeated = values.chunks(columns).flat_map(|row| row.repeat(each));
            values = repeated.collect();
        }
        (self.observer)(w, &values, Some(&experts))?;
        self.run(|pass| pass.moe_linear(x, w, ids, out))
    }

    fn moe_combine(&mut self, op: MoeCombine<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.moe_combine(op))
    }

    fn argmax(&mut self, logits: &Tensor<Cpu>, out: &mut Tensor<Cpu>) -> Result<()> {
        self.run(|pass| pass.argmax(logits, out))
    }

    fn copy_state(&mut self, pairs: &Tensor<Cpu>, state: &mut Tensor<Cpu>) -> Result<()> {
        self.run(|pass| pass.copy_state(pairs, state))
    }
    fn copy_pages(&mut self, op: CopyPages<'_, Cpu>) -> Result<()> {
        self.run(|pass| pass.copy_pages(op))
    }
}
