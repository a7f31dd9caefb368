//! `impl Ops`: each op in the file of its name.

mod add;
pub(crate) mod causal_conv1d;
pub(crate) mod gated_delta_rule;
pub(crate) mod linear;
mod linear_plan;
pub(crate) mod moe_linear;
pub(crate) mod paged_attention;

use crate::pass::index32;
use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::ops::{
    CausalConv1d, GatedDeltaRule, MoeCombine, Ops, PagedAttention, Rope, StoreKv,
};
use forge_core::tensor::{DType, Heads, Tensor, shape_error};
use forge_core::{Error, Result};

/// Most rows of a kernel whose grid has rows in its second dimension.
const MAX_GRID_ROWS: usize = 65_535;

/// Rows and row length of an f32 tensor as kernel arguments.
pub(crate) fn rows_columns(op: &'static str, tensor: &Tensor<Cuda>) -> Result<(u32, u32)> {
    if tensor.dtype != DType::F32 {
        return Err(shape_error(op, "tensor", "F32", format!("{tensor:?}")));
    }
    if tensor.rows() > MAX_GRID_ROWS {
        let reason = format!("{} rows, at most {MAX_GRID_ROWS}", tensor.rows());
        return Err(Error::unsupported(op, reason));
    }
    Ok((index32(op, "rows", tensor.rows())?, index32(op, "columns", tensor.row_len())?))
}

/// Checks an f32 `[rows, columns]`.
pub(crate) fn matrix(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor<Cuda>,
    rows: u32,
    columns: u32,
) -> Result<()> {
    tensor.expect(op, name, DType::F32, &[rows as usize, columns as usize])
}

/// Checks an i32 tensor of `len` entries without gaps.
pub(crate) fn indices(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor<Cuda>,
    len: usize,
) -> Result<()> {
    if tensor.dtype == DType::I32 && tensor.shape.len() == len && tensor.is_contiguous() {
        return Ok(());
    }
    Err(shape_error(op, name, format!("contiguous I32[{len}]"), format!("{tensor:?}")))
}

fn missing(op: &'static str) -> Result<()> {
    Err(Error::unsupported(op, "no CUDA kernel"))
}

#[allow(unused_variables, reason = "ops without a kernel")]
impl Ops<Cuda> for Pass<'_> {
    fn embed(
        &mut self,
        ids: &Tensor<Cuda>,
        table: &Weight<Cuda>,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        missing("embed")
    }
    fn gather_rows(
        &mut self,
        x: &Tensor<Cuda>,
        indices: &Tensor<Cuda>,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        missing("gather_rows")
    }
    fn linear(&mut self, x: &Tensor<Cuda>, w: &Weight<Cuda>, out: &mut Tensor<Cuda>) -> Result<()> {
        self.begin();
        linear::linear(self, x, w, out)
    }
    fn add(&mut self, x: &Tensor<Cuda>, sum: &mut Tensor<Cuda>) -> Result<()> {
        self.begin();
        add::add(self, x, sum)
    }
    fn rms_norm(
        &mut self,
        x: &Tensor<Cuda>,
        w: &Tensor<Cuda>,
        eps: f32,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        missing("rms_norm")
    }
    fn rms_norm_heads(&mut self, x: &mut Heads<Cuda>, w: &Tensor<Cuda>, eps: f32) -> Result<()> {
        missing("rms_norm_heads")
    }
    fn gated_rms_norm(
        &mut self,
        x: &Tensor<Cuda>,
        gate: &Tensor<Cuda>,
        w: &Tensor<Cuda>,
        eps: f32,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        missing("gated_rms_norm")
    }
    fn rope(&mut self, op: Rope<'_, Cuda>) -> Result<()> {
        missing("rope")
    }
    fn store_kv(&mut self, op: StoreKv<'_, Cuda>) -> Result<()> {
        missing("store_kv")
    }
    fn paged_attention(&mut self, op: PagedAttention<'_, Cuda>) -> Result<()> {
        self.begin();
        paged_attention::paged_attention(self, op)
    }
    fn sigmoid_mul(&mut self, gate: &Heads<Cuda>, x: &mut Tensor<Cuda>) -> Result<()> {
        missing("sigmoid_mul")
    }
    fn causal_conv1d(&mut self, op: CausalConv1d<'_, Cuda>) -> Result<()> {
        self.begin();
        causal_conv1d::causal_conv1d(self, op)
    }
    fn gated_delta_rule(&mut self, op: GatedDeltaRule<'_, Cuda>) -> Result<()> {
        self.begin();
        gated_delta_rule::gated_delta_rule(self, op)
    }
    fn silu_mul(&mut self, gate_up: &Tensor<Cuda>, out: &mut Tensor<Cuda>) -> Result<()> {
        missing("silu_mul")
    }
    fn moe_route(
        &mut self,
        logits: &Tensor<Cuda>,
        ids: &mut Tensor<Cuda>,
        weights: &mut Tensor<Cuda>,
    ) -> Result<()> {
        missing("moe_route")
    }
    fn moe_linear(
        &mut self,
        x: &Tensor<Cuda>,
        w: &Weight<Cuda>,
        ids: &Tensor<Cuda>,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        moe_linear::moe_linear(self, x, w, ids, out)
    }
    fn moe_combine(&mut self, op: MoeCombine<'_, Cuda>) -> Result<()> {
        missing("moe_combine")
    }
    fn argmax(&mut self, logits: &Tensor<Cuda>, out: &mut Tensor<Cuda>) -> Result<()> {
        missing("argmax")
    }
    fn copy_state(&mut self, pairs: &Tensor<Cuda>, state: &mut Tensor<Cuda>) -> Result<()> {
        missing("copy_state")
    }
    fn linear_silu_mul(
        &mut self,
        x: &Tensor<Cuda>,
        w: &Weight<Cuda>,
        scratch: &mut Tensor<Cuda>,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        linear::linear_silu_mul(self, x, w, scratch, out)
    }
}
