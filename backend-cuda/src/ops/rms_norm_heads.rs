//! RMS norm of every head in place.

use super::{contiguous, stride, warps};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::{Heads, Tensor};
use forge_core::{Result, check};

const OP: &str = "rms_norm_heads";
const NORM: Kernel = Kernel::new("rms_norm_heads", "rms_norm_heads");

pub(super) fn rms_norm_heads(
    pass: &mut Pass<'_>,
    x: &mut Heads<Cuda>,
    w: &Tensor<Cuda>,
    eps: f32,
) -> Result<()> {
    check::rms_norm_heads(x, w)?;
    contiguous(OP, "w", w)?;
    let tasks = index32(OP, "heads", x.rows() * x.heads)?;
    pass.launch(
        warps(Launch::new(OP, NORM), tasks),
        &[
            (&x.tensor).into(),
            stride(&x.tensor),
            (x.stride as u64).into(),
            index32(OP, "heads", x.heads)?.into(),
            index32(OP, "dim", x.dim)?.into(),
            w.into(),
            eps.into(),
            tasks.into(),
        ],
    )
}
