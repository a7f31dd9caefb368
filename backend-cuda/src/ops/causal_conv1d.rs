//! `causal_conv1d`.

use crate::{Cuda, Pass};
use forge_core::ops::CausalConv1d;
use forge_core::{Error, Result};

pub(crate) fn causal_conv1d(_pass: &mut Pass<'_>, _op: CausalConv1d<'_, Cuda>) -> Result<()> {
    Err(Error::unsupported("causal_conv1d", "no CUDA kernel"))
}
