//! `linear`.

use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::ops::Ops;
use forge_core::tensor::Tensor;
use forge_core::{Error, Result};

pub(crate) fn linear(
    _pass: &mut Pass<'_>,
    _x: &Tensor<Cuda>,
    _w: &Weight<Cuda>,
    _out: &mut Tensor<Cuda>,
) -> Result<()> {
    Err(Error::unsupported("linear", "no CUDA kernel"))
}

pub(crate) fn linear_silu_mul(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    w: &Weight<Cuda>,
    scratch: &mut Tensor<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    pass.linear(x, w, scratch)?;
    pass.silu_mul(scratch, out)
}
