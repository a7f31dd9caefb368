//! `moe_linear`.

use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::tensor::Tensor;
use forge_core::{Error, Result};

pub(crate) fn moe_linear(
    _pass: &mut Pass<'_>,
    _x: &Tensor<Cuda>,
    _w: &Weight<Cuda>,
    _ids: &Tensor<Cuda>,
    _out: &mut Tensor<Cuda>,
) -> Result<()> {
    Err(Error::unsupported("moe_linear", "no CUDA kernel"))
}
