//! RMS norm of groups, times a SiLU gate.

use super::{contiguous, stride, warps};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const OP: &str = "gated_rms_norm";
const NORM: Kernel = Kernel::new("gated_rms_norm", "gated_rms_norm");

pub(super) fn gated_rms_norm(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    gate: &Tensor<Cuda>,
    w: &Tensor<Cuda>,
    eps: f32,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, groups, dim) = check::gated_rms_norm(x, gate, w, out)?;
    contiguous(OP, "w", w)?;
    let tasks = index32(OP, "groups", rows * groups)?;
    pass.launch(
        warps(Launch::new(OP, NORM), tasks),
        &[
            x.into(),
            stride(x),
            gate.into(),
            stride(gate),
            w.into(),
            eps.into(),
            (&*out).into(),
            stride(out),
            index32(OP, "groups", groups)?.into(),
            index32(OP, "dim", dim)?.into(),
            tasks.into(),
        ],
    )
}
