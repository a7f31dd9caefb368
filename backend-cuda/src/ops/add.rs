//! `sum += x`.

use super::{matrix, rows_columns};
use crate::pass::{Kernel, Launch};
use crate::{Cuda, Pass};
use forge_core::Result;
use forge_core::tensor::Tensor;

const ADD: Kernel = Kernel::new("add", "add_f32");

pub(crate) fn add(pass: &mut Pass<'_>, x: &Tensor<Cuda>, sum: &mut Tensor<Cuda>) -> Result<()> {
    let (rows, columns) = rows_columns("add", sum)?;
    matrix("add", "x", x, rows, columns)?;
    let launch = Launch::new("add", ADD).grid(columns.div_ceil(1024), rows, 1).block(256).overlap();
    pass.launch(
        launch,
        &[
            x.into(),
            (x.row_stride as u64).into(),
            (&*sum).into(),
            (sum.row_stride as u64).into(),
            columns.into(),
        ],
    )
}
