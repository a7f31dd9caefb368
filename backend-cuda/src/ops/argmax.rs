//! Index of the largest value of each row, in two launches.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const OP: &str = "argmax";
const PARTIAL: Kernel = Kernel::new("argmax", "argmax_partial");
const FINAL: Kernel = Kernel::new("argmax", "argmax_final");
/// Columns that a block reads in one sweep.
const TILE: u32 = 1024;

pub(super) fn argmax(
    pass: &mut Pass<'_>,
    logits: &Tensor<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, columns) = check::argmax(logits, out)?;
    let (rows, columns) = (grid_rows(OP, rows)?, index32(OP, "columns", columns)?);
    // One wave of blocks over the whole device, and at least one tile for each.
    let per_row = pass.sms().div_ceil(rows.max(1)).max(1);
    let splits = columns.div_ceil(TILE).clamp(1, per_row.max(4));
    let partial = pass.scratch(8 * rows as usize * splits as usize)?;
    let first = Launch::new(OP, PARTIAL).grid(splits, rows, 1).block(256).overlap();
    pass.launch(first, &[logits.into(), stride(logits), columns.into(), (&partial).into()])?;
    let second = Launch::new(OP, FINAL).grid(rows, 1, 1).block(32).overlap();
    pass.launch(second, &[(&partial).into(), splits.into(), (&*out).into(), stride(out)])
}
