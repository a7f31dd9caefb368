//! `impl Ops`: each op in the file of its name.

mod add;
mod argmax;
mod causal_conv1d;
mod copy_pages;
mod copy_state;
mod embed;
mod gated_delta_rule;
mod gated_rms_norm;
mod gather_rows;
mod linear;
mod linear_plan;
mod moe_combine;
mod moe_linear;
mod moe_route;
mod paged_attention;
mod prepare_attention;
mod rms_norm;
mod rms_norm_heads;
mod rope;
mod sigmoid_mul;
mod silu_mul;
mod store_kv;

use crate::pass::{Arg, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::ops::{
    CausalConv1d, CopyPages, GatedDeltaRule, MoeCombine, Ops, PagedAttention, PrepareAttention,
    Rope, StoreKv,
};
use forge_core::tensor::{Heads, Tensor, shape_error};
use forge_core::{Error, Result};

/// Most rows of a kernel whose grid has rows in its second dimension.
const MAX_GRID_ROWS: usize = 65_535;

/// `rows` as a dimension of a grid.
pub(crate) fn grid_rows(op: &'static str, rows: usize) -> Result<u32> {
    if rows > MAX_GRID_ROWS {
        return Err(Error::unsupported(op, format!("{rows} rows, at most {MAX_GRID_ROWS}")));
    }
    index32(op, "rows", rows)
}

/// Row stride in elements, as a 64-bit argument.
pub(crate) fn stride<'a>(tensor: &Tensor<Cuda>) -> Arg<'a> {
    Arg::U64(tensor.row_stride as u64)
}

/// Fails unless the elements of `tensor` follow each other without gaps.
pub(crate) fn contiguous(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor<Cuda>,
) -> Result<()> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    Err(shape_error(op, name, "values without gaps", format!("{tensor:?}")))
}

/// One warp a task, four warps a block.
fn warps(launch: Launch, tasks: u32) -> Launch {
    launch.grid(tasks.div_ceil(4), 1, 1).block(128).overlap()
}

impl Ops<Cuda> for Pass<'_> {
    fn mark(&mut self) -> Result<()> {
        Pass::mark(self)
    }

    fn embed(
        &mut self,
        ids: &Tensor<Cuda>,
        table: &Weight<Cuda>,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        embed::embed(self, ids, table, out)
    }
    fn gather_rows(
        &mut self,
        x: &Tensor<Cuda>,
        indices: &Tensor<Cuda>,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        gather_rows::gather_rows(self, x, indices, out)
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
        self.begin();
        rms_norm::rms_norm(self, x, w, eps, out)
    }
    fn rms_norm_heads(&mut self, x: &mut Heads<Cuda>, w: &Tensor<Cuda>, eps: f32) -> Result<()> {
        self.begin();
        rms_norm_heads::rms_norm_heads(self, x, w, eps)
    }
    fn gated_rms_norm(
        &mut self,
        x: &Tensor<Cuda>,
        gate: &Tensor<Cuda>,
        w: &Tensor<Cuda>,
        eps: f32,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        gated_rms_norm::gated_rms_norm(self, x, gate, w, eps, out)
    }
    fn rope(&mut self, op: Rope<'_, Cuda>) -> Result<()> {
        self.begin();
        rope::rope(self, op)
    }
    fn store_kv(&mut self, op: StoreKv<'_, Cuda>) -> Result<()> {
        self.begin();
        store_kv::store_kv(self, op)
    }
    fn paged_attention(&mut self, op: PagedAttention<'_, Cuda>) -> Result<()> {
        self.begin();
        paged_attention::paged_attention(self, op)
    }
    fn sigmoid_mul(&mut self, gate: &Heads<Cuda>, x: &mut Tensor<Cuda>) -> Result<()> {
        self.begin();
        sigmoid_mul::sigmoid_mul(self, gate, x)
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
        self.begin();
        silu_mul::silu_mul(self, gate_up, out)
    }
    fn moe_route(
        &mut self,
        logits: &Tensor<Cuda>,
        ids: &mut Tensor<Cuda>,
        weights: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        moe_route::moe_route(self, logits, ids, weights)
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
        self.begin();
        moe_combine::moe_combine(self, op)
    }
    fn argmax(&mut self, logits: &Tensor<Cuda>, out: &mut Tensor<Cuda>) -> Result<()> {
        self.begin();
        argmax::argmax(self, logits, out)
    }
    fn copy_state(&mut self, pairs: &Tensor<Cuda>, state: &mut Tensor<Cuda>) -> Result<()> {
        self.begin();
        copy_state::copy_state(self, pairs, state)
    }
    fn copy_pages(&mut self, op: CopyPages<'_, Cuda>) -> Result<()> {
        self.begin();
        copy_pages::copy_pages(self, op)
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
    fn add_rms_norm(
        &mut self,
        x: &Tensor<Cuda>,
        sum: &mut Tensor<Cuda>,
        w: &Tensor<Cuda>,
        eps: f32,
        out: &mut Tensor<Cuda>,
    ) -> Result<()> {
        self.begin();
        rms_norm::add_rms_norm(self, x, sum, w, eps, out)
    }
    fn prepare_attention(&mut self, op: PrepareAttention<'_, Cuda>) -> Result<()> {
        self.begin();
        prepare_attention::prepare_attention(self, op)
    }
}
