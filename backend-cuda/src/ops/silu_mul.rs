//! `out = silu(gate) * up`.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const OP: &str = "silu_mul";
const SILU_MUL: Kernel = Kernel::new("silu_mul", "silu_mul");

pub(super) fn silu_mul(
    pass: &mut Pass<'_>,
    gate_up: &Tensor<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, inner) = check::silu_mul(gate_up, out)?;
    let (rows, inner) = (grid_rows(OP, rows)?, index32(OP, "columns", inner)?);
    let launch = Launch::new(OP, SILU_MUL).grid(inner.div_ceil(1024), rows, 1).block(256).overlap();
    pass.launch(
        launch,
        &[gate_up.into(), stride(gate_up), (&*out).into(), stride(out), inner.into()],
    )
}
