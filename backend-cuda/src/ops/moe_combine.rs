//! Weighted sum of the routed experts and the gated shared one.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::ops::MoeCombine;
use forge_core::{Result, check};

const OP: &str = "moe_combine";
const COMBINE: Kernel = Kernel::new("moe_combine", "moe_combine");

pub(super) fn moe_combine(pass: &mut Pass<'_>, op: MoeCombine<'_, Cuda>) -> Result<()> {
    let (rows, k, columns) = check::moe_combine(&op)?;
    let (rows, columns) = (grid_rows(OP, rows)?, index32(OP, "columns", columns)?);
    let launch = Launch::new(OP, COMBINE).grid(columns.div_ceil(512), rows, 1).block(128).overlap();
    pass.launch(
        launch,
        &[
            op.experts.into(),
            stride(op.experts),
            op.weights.into(),
            stride(op.weights),
            index32(OP, "k", k)?.into(),
            op.shared.into(),
            stride(op.shared),
            op.shared_gate.into(),
            stride(op.shared_gate),
            (&*op.out).into(),
            stride(op.out),
            columns.into(),
        ],
    )
}
