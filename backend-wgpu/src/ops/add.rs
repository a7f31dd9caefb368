//! `add`: one invocation per element.

use super::T;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;

const OP: &str = "add";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, x: &T, sum: &T) -> Result<()> {
    let (rows, columns) = check::same(OP, x, sum)?;
    let scalars =
        Scalars::new(OP, &[rows, columns, x.offset, x.row_stride, sum.offset, sum.row_stride])?;
    let bindings = vec![read(OP, "x", x)?, write(OP, "sum", sum)?];
    pass.dispatch_elements(&shader(), scalars, bindings, rows * columns)
}
