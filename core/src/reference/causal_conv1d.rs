//! Depthwise causal convolution and SiLU over ragged sequences.

use super::silu::silu;
use super::{Cpu, view};
use crate::check::ConvDims;
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) fn causal_conv1d(
    x: &Tensor<Cpu>,
    weight: &Tensor<Cpu>,
    state: &Tensor<Cpu>,
    sequences: &Tensor<Cpu>,
    dims: ConvDims,
    out: &Tensor<Cpu>,
) -> Result<()> {
    const OP: &str = "causal_conv1d";
    let (x, weight, sequences) =
        (view::read(OP, x)?, view::read(OP, weight)?, view::read(OP, sequences)?);
    let (mut state, mut out) = (view::write(OP, state)?, view::write(OP, out)?);
    let (channels, history) = (dims.channels, dims.kernel - 1);
    let (taps, _) = weight.flat();
    for s in 0..dims.sequences {
        let &[first, rows, length, slot] = sequences.ints(s) else { continue };
        if rows == 0 {
            continue;
        }
        let (first, rows) = (first as usize, rows as usize);
        let state = state.row(slot as usize);
        if length as usize == rows {
            state.fill(0.0);
        }
        // The last `history` raw rows before the pass, then the rows of the pass.
        let mut window: Vec<&[f32]> = Vec::with_capacity(history + rows);
        let before = state.to_vec();
        window.extend(before.chunks(channels));
        window.extend((0..rows).map(|r| x.row(first + r)));
        for r in 0..rows {
            let out = out.row(first + r);
            for (c, out) in out.iter_mut().enumerate() {
                let taps = &taps[c * dims.kernel..(c + 1) * dims.kernel];
                let sum: f32 = taps.iter().zip(&window[r..]).map(|(tap, row)| tap * row[c]).sum();
                *out = silu(sum);
            }
        }
        for (target, row) in state.chunks_mut(channels).zip(&window[rows..]) {
            target.copy_from_slice(row);
        }
    }
    Ok(())
}
