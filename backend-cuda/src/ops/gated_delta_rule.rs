//! `gated_delta_rule`.

use crate::{Cuda, Pass};
use forge_core::ops::GatedDeltaRule;
use forge_core::{Error, Result};

pub(crate) fn gated_delta_rule(_pass: &mut Pass<'_>, _op: GatedDeltaRule<'_, Cuda>) -> Result<()> {
    Err(Error::unsupported("gated_delta_rule", "no CUDA kernel"))
}
