//! `causal_conv1d`: one invocation per channel of a sequence, one dispatch per part of the state.

use super::contiguous;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read, write};
use crate::pipeline::Shader;
use forge_core::check::{self, ConvDims};
use forge_core::error::{Error, Result};
use forge_core::ops::CausalConv1d;

const OP: &str = "causal_conv1d";
/// Most taps: window and taps lie in registers.
const MAX_KERNEL: usize = 16;

pub(super) fn shader(kernel: usize) -> Shader {
    Shader::new(OP, "rrrww", 64).constant("KERNEL", kernel as u32)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, op: CausalConv1d<'_, WgpuBackend>) -> Result<()> {
    let ConvDims { rows, sequences: count, channels, kernel, .. } = check::causal_conv1d(&op)?;
    let CausalConv1d { x, weight, state, sequences, out } = op;
    contiguous(OP, "sequences", sequences)?;
    if !(2..=MAX_KERNEL).contains(&kernel) {
        return Err(Error::unsupported(
            format!("{OP} of {kernel} taps"),
            format!("2 to {MAX_KERNEL}"),
        ));
    }
    contiguous(OP, "state", state)?;
    contiguous(OP, "weight", weight)?;
    for part in state.buffer.row_parts(state) {
        let scalars = Scalars::new(
            OP,
            &[
                rows,
                channels,
                count,
                part.first_row,
                part.rows,
                x.offset,
                x.row_stride,
                weight.offset,
                part.offset,
                sequences.offset,
                out.offset,
                out.row_stride,
            ],
        )?;
        let bindings = vec![
            read(OP, "x", x)?,
            read(OP, "weight", weight)?,
            read(OP, "sequences", sequences)?,
            raw(&part.buffer, true),
            write(OP, "out", out)?,
        ];
        let groups = [channels.div_ceil(64) as u32, count as u32 + 1, 1];
        pass.dispatch(&shader(kernel), scalars, bindings, groups)?;
    }
    Ok(())
}
