//! `sigmoid_mul`: one invocation per element.

use super::T;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;
use forge_core::tensor::Heads;

const OP: &str = "sigmoid_mul";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rw", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, gate: &Heads<WgpuBackend>, x: &T) -> Result<()> {
    check::sigmoid_mul(gate, x)?;
    let rows = gate.rows();
    let scalars = Scalars::new(
        OP,
        &[
            rows,
            gate.heads,
            gate.dim,
            gate.tensor.offset,
            gate.tensor.row_stride,
            gate.stride,
            x.offset,
            x.row_stride,
        ],
    )?;
    let bindings = vec![read(OP, "gate", &gate.tensor)?, write(OP, "x", x)?];
    pass.dispatch_elements(&shader(), scalars, bindings, rows * gate.heads * gate.dim)
}
