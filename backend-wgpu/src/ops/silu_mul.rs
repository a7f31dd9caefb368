//! `silu_mul`: one invocation per element of the output.

use super::T;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;

const OP: &str = "silu_mul";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, gate_up: &T, out: &T) -> Result<()> {
    let (rows, columns) = check::silu_mul(gate_up, out)?;
    let scalars = Scalars::new(
        OP,
        &[rows, columns, gate_up.offset, gate_up.row_stride, out.offset, out.row_stride],
    )?;
    let bindings = vec![read(OP, "gate_up", gate_up)?, write(OP, "out", out)?];
    pass.dispatch_elements(&shader(), scalars, bindings, rows * columns)
}
