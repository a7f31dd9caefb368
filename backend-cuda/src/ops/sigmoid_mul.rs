//! `x *= sigmoid(gate)`.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::{Heads, Tensor};
use forge_core::{Result, check};

const OP: &str = "sigmoid_mul";
const SIGMOID_MUL: Kernel = Kernel::new("sigmoid_mul", "sigmoid_mul");

pub(super) fn sigmoid_mul(
    pass: &mut Pass<'_>,
    gate: &Heads<Cuda>,
    x: &mut Tensor<Cuda>,
) -> Result<()> {
    check::sigmoid_mul(gate, x)?;
    let (rows, columns) = (grid_rows(OP, x.rows())?, index32(OP, "columns", x.row_len())?);
    let launch =
        Launch::new(OP, SIGMOID_MUL).grid(columns.div_ceil(1024), rows, 1).block(256).overlap();
    pass.launch(
        launch,
        &[
            (&gate.tensor).into(),
            stride(&gate.tensor),
            (gate.stride as u64).into(),
            (&*x).into(),
            stride(x),
            index32(OP, "dim", gate.dim)?.into(),
            columns.into(),
        ],
    )
}
