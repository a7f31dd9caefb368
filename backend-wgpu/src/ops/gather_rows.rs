//! `gather_rows`: one invocation per element of the output.

use super::{T, matrix};
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::error::Result;
use forge_core::tensor::{DType, shape_error};

const OP: &str = "gather_rows";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rrw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, x: &T, indices: &T, out: &T) -> Result<()> {
    let (rows, columns) = (out.rows(), out.row_len());
    matrix(OP, "out", out, rows, columns)?;
    matrix(OP, "x", x, x.rows(), columns)?;
    indices.expect(OP, "indices", DType::I32, &[rows])?;
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
