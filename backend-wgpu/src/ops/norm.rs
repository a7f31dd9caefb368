//! The norms: one workgroup per row or head.

use super::{T, contiguous};
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;
use forge_core::tensor::Heads;

pub(super) fn shaders() -> [Shader; 4] {
    [
        Shader::new("rms_norm", "rrw", 256),
        Shader::new("add_rms_norm", "rrww", 256),
        Shader::new("rms_norm_heads", "rw", 64),
        Shader::new("gated_rms_norm", "rrrw", 64),
    ]
}

pub(super) fn rms_norm(pass: &mut WgpuPass<'_>, x: &T, w: &T, eps: f32, out: &T) -> Result<()> {
    const OP: &str = "rms_norm";
    let (rows, columns) = check::rms_norm(x, w, out)?;
    contiguous(OP, "w", w)?;
    let [shader, ..] = shaders();
    let values = [rows, columns, x.offset, x.row_stride, w.offset, out.offset, out.row_stride];
    let scalars = Scalars::new(OP, &values)?.float(eps);
    let bindings = vec![read(OP, "x", x)?, read(OP, "w", w)?, write(OP, "out", out)?];
    pass.dispatch_flat(&shader, scalars, bindings, rows)
}

pub(super) fn add_rms_norm(
    pass: &mut WgpuPass<'_>,
    x: &T,
    sum: &T,
    w: &T,
    eps: f32,
    out: &T,
) -> Result<()> {
    const OP: &str = "add_rms_norm";
    check::same(OP, x, sum)?;
    let (rows, columns) = check::rms_norm(x, w, out)?;
    contiguous(OP, "w", w)?;
    let [_, shader, ..] = shaders();
    let values = [
        rows,
        columns,
        x.offset,
        x.row_stride,
        sum.offset,
        sum.row_stride,
        w.offset,
        out.offset,
        out.row_stride,
    ];
    let scalars = Scalars::new(OP, &values)?.float(eps);
    let bindings =
        vec![read(OP, "x", x)?, read(OP, "w", w)?, write(OP, "sum", sum)?, write(OP, "out", out)?];
    pass.dispatch_flat(&shader, scalars, bindings, rows)
}

pub(super) fn rms_norm_heads(
    pass: &mut WgpuPass<'_>,
    x: &Heads<WgpuBackend>,
    w: &T,
    eps: f32,
) -> Result<()> {
    const OP: &str = "rms_norm_heads";
    check::rms_norm_heads(x, w)?;
    contiguous(OP, "w", w)?;
    let [_, _, shader, _] = shaders();
    let values =
        [x.rows(), x.heads, x.dim, x.tensor.offset, x.tensor.row_stride, x.stride, w.offset];
    let scalars = Scalars::new(OP, &values)?.float(eps);
    let bindings = vec![read(OP, "w", w)?, write(OP, "x", &x.tensor)?];
    pass.dispatch_flat(&shader, scalars, bindings, x.rows() * x.heads)
}

pub(super) fn gated_rms_norm(
    pass: &mut WgpuPass<'_>,
    x: &T,
    gate: &T,
    w: &T,
    eps: f32,
    out: &T,
) -> Result<()> {
    const OP: &str = "gated_rms_norm";
    let (rows, heads, dim) = check::gated_rms_norm(x, gate, w, out)?;
    contiguous(OP, "w", w)?;
    let [_, _, _, shader] = shaders();
    let values = [
        rows,
        heads,
        dim,
        x.offset,
        x.row_stride,
        gate.offset,
        gate.row_stride,
        w.offset,
        out.offset,
        out.row_stride,
    ];
    let scalars = Scalars::new(OP, &values)?.float(eps);
    let bindings =
        vec![read(OP, "x", x)?, read(OP, "gate", gate)?, read(OP, "w", w)?, write(OP, "out", out)?];
    pass.dispatch_flat(&shader, scalars, bindings, rows * heads)
}
