//! `gather_rows`: one invocation per element of the output.

use super::T;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;
use forge_core::tensor::shape_error;

const OP: &str = "gather_rows";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rrw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, x: &T, indices: &T, out: &T) -> Result<()> {
    let (rows, columns) = check::gather_rows(x, indices, out)?;
    if x.rows() == 0 {
        return Err(shape_error(OP, "x", "at least one row", format!("{x:?}")));
    }
    let scalars = Scalars::new(
        OP,
        &[
            rows,
            columns,
            x.rows(),
            x.offset,
            x.row_stride,
            indices.offset,
            indices.row_stride,
            out.offset,
            out.row_stride,
        ],
    )?;
    let bindings = vec![read(OP, "x", x)?, read(OP, "indices", indices)?, write(OP, "out", out)?];
    pass.dispatch_elements(&shader(), scalars, bindings, rows * columns)
}
