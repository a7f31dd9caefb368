//! Rows of activations by index.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const OP: &str = "gather_rows";
const GATHER: Kernel = Kernel::new("gather_rows", "gather_rows");

pub(super) fn gather_rows(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    indices: &Tensor<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, columns) = check::gather_rows(x, indices, out)?;
    let (rows, columns) = (grid_rows(OP, rows)?, index32(OP, "columns", columns)?);
    let launch = Launch::new(OP, GATHER).grid(columns.div_ceil(1024), rows, 1).block(256).overlap();
    let x_rows = index32(OP, "rows", x.rows())?;
    pass.launch(
        launch,
        &[
            x.into(),
            stride(x),
            x_rows.into(),
            indices.into(),
            stride(indices),
            (&*out).into(),
            stride(out),
            columns.into(),
        ],
    )
}
