//! Whole rows of a state tensor onto others.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const OP: &str = "copy_state";
const COPY: Kernel = Kernel::new("copy_state", "copy_state");
/// Bytes that one block copies per sweep: 256 threads of 16 bytes.
const SWEEP_BYTES: usize = 4096;

pub(super) fn copy_state(
    pass: &mut Pass<'_>,
    pairs: &Tensor<Cuda>,
    state: &mut Tensor<Cuda>,
) -> Result<()> {
    let lines = grid_rows(OP, check::copy_state(pairs, state)?)?;
    let row_bytes = state.row_len() * state.dtype.bytes();
    let slots = index32(OP, "slots", state.rows())?;
    // Eight blocks on each SM keep enough loads in flight to reach the memory's bandwidth.
    let most = (8 * pass.sms()).div_ceil(lines.max(1)).max(1);
    let chunks = index32(OP, "row", row_bytes.div_ceil(SWEEP_BYTES))?.clamp(1, most);
    let launch = Launch::new(OP, COPY).grid(chunks, lines, 1).block(256).overlap();
    pass.launch(
        launch,
        &[pairs.into(), stride(pairs), (&*state).into(), (row_bytes as u64).into(), slots.into()],
    )
}
