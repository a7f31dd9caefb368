//! The ops of the mixture of experts.

use super::T;
use super::linear::Activations;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read, write};
use crate::pipeline::Shader;
use crate::weights::{UNIT, weight_shader};
use forge_core::backend::Weight;
use forge_core::check;
use forge_core::error::{Error, Result};
use forge_core::ops::MoeCombine;
use forge_core::weights::quant::StorageType;

/// Most experts of a router: their logits lie in workgroup memory.
const MAX_EXPERTS: usize = 1024;
/// Most experts of a token: one invocation each writes the weights.
const MAX_TOP_K: usize = 64;
/// Outputs of a workgroup of `moe_linear`.
const OUTPUTS: usize = 4;

pub(super) fn route_shader() -> Shader {
    Shader::new("moe_route", "rww", 64).constant("EXPERTS", MAX_EXPERTS as u32)
}

pub(super) fn linear_shader(storage: StorageType, activations: Activations) -> Shader {
    weight_shader("moe_linear", storage, "rrrrw", "r-rrw", 64)
        .snippets(&[activations.snippet()])
        .constant("OUTPUTS", OUTPUTS as u32)
}

pub(super) fn combine_shader() -> Shader {
    Shader::new("moe_combine", "rrrrw", 256)
}

pub(super) fn route(pass: &mut WgpuPass<'_>, logits: &T, ids: &T, weights: &T) -> Result<()> {
    const OP: &str = "moe_route";
    let (rows, experts, top_k) = check::moe_route(logits, ids, weights)?;
    if experts > MAX_EXPERTS || top_k > MAX_TOP_K || top_k == 0 {
        return Err(Error::unsupported(
            format!("{OP} of {top_k} in {experts} experts"),
            format!("at most {MAX_TOP_K} in {MAX_EXPERTS}"),
        ));
    }
    let scalars = Scalars::new(
        OP,
        &[
            rows,
            experts,
            top_k,
            logits.offset,
            logits.row_stride,
            ids.offset,
            ids.row_stride,
            weights.offset,
            weights.row_stride,
        ],
    )?;
    let bindings =
        vec![read(OP, "logits", logits)?, write(OP, "ids", ids)?, write(OP, "weights", weights)?];
    pass.dispatch_flat(&route_shader(), scalars, bindings, rows)
}

pub(super) fn linear(
    pass: &mut WgpuPass<'_>,
    x: &T,
    w: &Weight<WgpuBackend>,
    ids: &T,
    out: &T,
) -> Result<()> {
    const OP: &str = "moe_linear";
    let (rows, top_k, shared) = check::moe_linear(x, w, ids, out)?;
    let pairs = rows * top_k;
    let pairs_per_row = if shared { top_k } else { 1 };
    let count = |n: usize| {
        u32::try_from(n).map_err(|_| Error::unsupported(OP, format!("{n} rows are too many")))
    };
    for segment in w.storage.0.iter() {
        let scalars = Scalars::new(
            OP,
            &[
                w.columns,
                w.columns.div_ceil(UNIT),
                w.columns / segment.storage.block().0,
                segment.row_words,
                segment.rows,
                segment.first_expert,
                segment.experts,
                top_k,
                pairs_per_row,
                ids.offset,
                ids.row_stride,
                x.offset,
                x.row_stride,
                out.offset + segment.first_row,
                out.row_stride,
            ],
        )?;
        let mut bindings = vec![raw(&segment.buffer, false)];
        bindings.extend(segment.grids.iter().map(|grids| raw(grids, false)));
        bindings.push(read(OP, "x", x)?);
        bindings.push(read(OP, "ids", ids)?);
        bindings.push(write(OP, "out", out)?);
        let groups = [count(segment.rows.div_ceil(OUTPUTS))?, count(pairs)?, 1];
        let shader = linear_shader(segment.storage, Activations::of(x));
        pass.dispatch(&shader, scalars, bindings, groups)?;
    }
    Ok(())
}

pub(super) fn combine(pass: &mut WgpuPass<'_>, op: MoeCombine<'_, WgpuBackend>) -> Result<()> {
    const OP: &str = "moe_combine";
    let (rows, top_k, columns) = check::moe_combine(&op)?;
    let MoeCombine { experts, weights, shared, shared_gate, out } = op;
    let scalars = Scalars::new(
        OP,
        &[
            rows,
            columns,
            top_k,
            experts.offset,
            experts.row_stride,
            weights.offset,
            weights.row_stride,
            shared.offset,
            shared.row_stride,
            shared_gate.offset,
            shared_gate.row_stride,
            out.offset,
            out.row_stride,
        ],
    )?;
    let bindings = vec![
        read(OP, "experts", experts)?,
        read(OP, "weights", weights)?,
        read(OP, "shared", shared)?,
        read(OP, "shared_gate", shared_gate)?,
        write(OP, "out", out)?,
    ];
    pass.dispatch_elements(&combine_shader(), scalars, bindings, rows * columns)
}
