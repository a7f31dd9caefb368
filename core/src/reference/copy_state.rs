//! Copies rows of a state tensor onto others.

use super::{Cpu, view};
use crate::error::Result;
use crate::tensor::{Tensor, shape_error};

pub(super) fn copy_state(pairs: &Tensor<Cpu>, state: &Tensor<Cpu>) -> Result<()> {
    let pairs_view = view::read("copy_state", pairs)?;
    let mut state_view = view::write("copy_state", state)?;
    let row_bytes = state.row_len() * state.dtype.bytes();
    let bytes = state_view.bytes();
    for r in 0..pairs.rows() {
        let &[from, to] = pairs_view.ints(r) else { continue };
        if from < 0 {
            continue;
        }
        let (from, to) = (from as usize, to as usize);
        if from.max(to) >= state.rows() {
            return Err(shape_error("copy_state", "pairs", state.rows(), from.max(to)));
        }
        bytes.copy_within(from * row_bytes..(from + 1) * row_bytes, to * row_bytes);
    }
    Ok(())
}
