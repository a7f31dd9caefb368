//! Checks, bindings and workgroups of every op.

mod add;
mod argmax;
mod causal_conv1d;
mod copy_pages;
mod copy_state;
mod embed;
mod gated_delta_rule;
mod gather_rows;
mod linear;
mod moe;
mod norm;
mod paged_attention;
mod rope;
mod sigmoid_mul;
mod silu_mul;
mod store_kv;
#[cfg(test)]
mod variants;

pub(crate) use linear::TileRule;

use crate::WgpuBackend;
use crate::pass::WgpuPass;
use forge_core::backend::Weight;
use forge_core::error::Result;
use forge_core::ops::{
    CausalConv1d, CopyPages, GatedDeltaRule, MoeCombine, Ops, PagedAttention, Rope, StoreKv,
};
use forge_core::tensor::{Heads, Tensor, shape_error};

type T = Tensor<WgpuBackend>;

/// Fails unless the elements of `t` follow each other without gaps: its shader knows no row stride.
fn contiguous(op: &'static str, name: &'static str, t: &T) -> Result<()> {
    if t.is_contiguous() {
        return Ok(());
    }
    Err(shape_error(op, name, "contiguous", format!("{t:?}")))
}

impl Ops<WgpuBackend> for WgpuPass<'_> {
    fn embed(&mut self, ids: &T, table: &Weight<WgpuBackend>, out: &mut T) -> Result<()> {
        embed::record(self, ids, table, out)
    }
    fn gather_rows(&mut self, x: &T, indices: &T, out: &mut T) -> Result<()> {
        gather_rows::record(self, x, indices, out)
    }
    fn linear(&mut self, x: &T, w: &Weight<WgpuBackend>, out: &mut T) -> Result<()> {
        linear::record(self, x, w, out)
    }
    fn add(&mut self, x: &T, sum: &mut T) -> Result<()> {
        add::record(self, x, sum)
    }
    fn rms_norm(&mut self, x: &T, w: &T, eps: f32, out: &mut T) -> Result<()> {
        norm::rms_norm(self, x, w, eps, out)
    }
    fn rms_norm_heads(&mut self, x: &mut Heads<WgpuBackend>, w: &T, eps: f32) -> Result<()> {
        norm::rms_norm_heads(self, x, w, eps)
    }
    fn gated_rms_norm(&mut self, x: &T, gate: &T, w: &T, eps: f32, out: &mut T) -> Result<()> {
        norm::gated_rms_norm(self, x, gate, w, eps, out)
    }
    fn rope(&mut self, op: Rope<'_, WgpuBackend>) -> Result<()> {
        rope::record(self, op)
    }
    fn store_kv(&mut self, op: StoreKv<'_, WgpuBackend>) -> Result<()> {
        store_kv::record(self, op)
    }
    fn paged_attention(&mut self, op: PagedAttention<'_, WgpuBackend>) -> Result<()> {
        paged_attention::record(self, op)
    }
    fn sigmoid_mul(&mut self, gate: &Heads<WgpuBackend>, x: &mut T) -> Result<()> {
        sigmoid_mul::record(self, gate, x)
    }
    fn causal_conv1d(&mut self, op: CausalConv1d<'_, WgpuBackend>) -> Result<()> {
        causal_conv1d::record(self, op)
    }
    fn gated_delta_rule(&mut self, op: GatedDeltaRule<'_, WgpuBackend>) -> Result<()> {
        gated_delta_rule::record(self, op)
    }
    fn silu_mul(&mut self, gate_up: &T, out: &mut T) -> Result<()> {
        silu_mul::record(self, gate_up, out)
    }
    fn moe_route(&mut self, logits: &T, ids: &mut T, weights: &mut T) -> Result<()> {
        moe::route(self, logits, ids, weights)
    }
    fn moe_linear(&mut self, x: &T, w: &Weight<WgpuBackend>, ids: &T, out: &mut T) -> Result<()> {
        moe::linear(self, x, w, ids, out)
    }
    fn moe_combine(&mut self, op: MoeCombine<'_, WgpuBackend>) -> Result<()> {
        moe::combine(self, op)
    }
    fn argmax(&mut self, logits: &T, out: &mut T) -> Result<()> {
        argmax::record(self, logits, out)
    }
    fn copy_state(&mut self, pairs: &T, state: &mut T) -> Result<()> {
        copy_state::record(self, pairs, state)
    }
    fn copy_pages(&mut self, op: CopyPages<'_, WgpuBackend>) -> Result<()> {
        copy_pages::record(self, op)
    }
    fn add_rms_norm(&mut self, x: &T, sum: &mut T, w: &T, eps: f32, out: &mut T) -> Result<()> {
        norm::add_rms_norm(self, x, sum, w, eps, out)
    }
}
