//! Rotary embedding of heads in place.

use super::{contiguous, grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::ops::{Rope, RopePairing};
use forge_core::{Result, check};

const OP: &str = "rope";
const ROPE: Kernel = Kernel::new("rope", "rope");

/// The kernels' flag for a pairing.
pub(super) fn adjacent(pairing: RopePairing) -> u32 {
    match pairing {
        RopePairing::Half => 0,
        RopePairing::Adjacent => 1,
    }
}

pub(super) fn rope(pass: &mut Pass<'_>, op: Rope<'_, Cuda>) -> Result<()> {
    let pairs = index32(OP, "pairs", check::rope(&op)?)?;
    let Rope { positions, frequencies, pairing, x } = op;
    contiguous(OP, "frequencies", frequencies)?;
    let rows = grid_rows(OP, x.rows())?;
    let launch = Launch::new(OP, ROPE).grid(pairs.div_ceil(32), rows, 1).block_2d(32, 8).overlap();
    pass.launch(
        launch,
        &[
            (&x.tensor).into(),
            stride(&x.tensor),
            (x.stride as u64).into(),
            index32(OP, "heads", x.heads)?.into(),
            positions.into(),
            stride(positions),
            frequencies.into(),
            pairs.into(),
            adjacent(pairing).into(),
        ],
    )
}
