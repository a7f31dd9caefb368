//! `argmax`: one workgroup per row.

use super::T;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;

const OP: &str = "argmax";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, logits: &T, out: &T) -> Result<()> {
    let (rows, columns) = check::argmax(logits, out)?;
    let scalars = Scalars::new(
        OP,
        &[rows, columns, logits.offset, logits.row_stride, out.offset, out.row_stride],
    )?;
    let bindings = vec![read(OP, "logits", logits)?, write(OP, "out", out)?];
    pass.dispatch_flat(&shader(), scalars, bindings, rows)
}
