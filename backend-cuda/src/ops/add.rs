//! `sum += x`.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const OP: &str = "add";
const ADD: Kernel = Kernel::new("add", "add_f32");

pub(super) fn add(pass: &mut Pass<'_>, x: &Tensor<Cuda>, sum: &mut Tensor<Cuda>) -> Result<()> {
    let (rows, columns) = check::same(OP, x, sum)?;
    let (rows, columns) = (grid_rows(OP, rows)?, index32(OP, "columns", columns)?);
    let launch = Launch::new(OP, ADD).grid(columns.div_ceil(1024), rows, 1).block(256).overlap();
    pass.launch(launch, &[x.into(), stride(x), (&*sum).into(), stride(sum), columns.into()])
}
