//! `argmax`: one workgroup per row.

use super::{T, matrix};
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::error::Result;
use forge_core::tensor::DType;

const OP: &str = "argmax";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, logits: &T, out: &T) -> Result<()> {
    let (rows, columns) = (logits.rows(), logits.row_len());
    matrix(OP, "logits", logits, rows, columns)?;
    out.expect(OP, "out", DType::I32, &[rows])?;
    let scalars = Scalars::new(
        OP,
        &[rows, columns, logits.offset, logits.row_stride, out.offset, out.row_stride],
    )?;
    let bindings = vec![read(OP, "logits", logits)?, write(OP, "out", out)?];
    pass.dispatch_flat(&shader(), scalars, bindings, rows)
}
