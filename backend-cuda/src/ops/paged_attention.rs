//! `paged_attention`.

use crate::{Cuda, Pass};
use forge_core::ops::PagedAttention;
use forge_core::{Error, Result};

pub(crate) fn paged_attention(_pass: &mut Pass<'_>, _op: PagedAttention<'_, Cuda>) -> Result<()> {
    Err(Error::unsupported("paged_attention", "no CUDA kernel"))
}
