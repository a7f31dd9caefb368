//! `copy_state`: one dispatch per pair of buffers that the state lies in.

use super::T;
use crate::pass::{Scalars, WgpuPass, raw, read};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::{Error, Result};
use forge_core::tensor::shape_error;

const OP: &str = "copy_state";
/// Workgroups that share the words of a row: enough to fill a device, few enough to loop.
const GROUPS: usize = 256;

pub(super) fn shaders() -> [Shader; 2] {
    [Shader::new(OP, "rw", 256), Shader::new(OP, "rwr", 256).entry("copy_state_across")]
}

pub(super) fn record(pass: &mut WgpuPass<'_>, pairs: &T, state: &T) -> Result<()> {
    check::copy_state(pairs, state)?;
    let element_bytes = state.dtype.bytes();
    let row_bytes = state.row_len() * element_bytes;
    if !row_bytes.is_multiple_of(4) || !(state.offset * element_bytes).is_multiple_of(4) {
        return Err(shape_error(OP, "state", "contiguous rows of words", format!("{state:?}")));
    }
    let row_words = row_bytes / 4;
    let count = u32::try_from(pairs.rows())
        .map_err(|_| Error::unsupported(OP, format!("{} pairs", pairs.rows())))?;
    let groups = [row_words.div_ceil(256).min(GROUPS) as u32, count, 1];
    let parts = state.buffer.row_parts(state);
    let [within, across] = shaders();
    for from in &parts {
        for to in &parts {
            let scalars = Scalars::new(
                OP,
                &[
                    row_words,
                    pairs.offset,
                    pairs.row_stride,
                    from.first_row,
                    from.rows,
                    to.first_row,
                    to.rows,
                    from.offset * element_bytes / 4,
                    to.offset * element_bytes / 4,
                ],
            )?;
            let mut bindings = vec![read(OP, "pairs", pairs)?, raw(&to.buffer, true)];
            if from.first_row == to.first_row {
                pass.dispatch(&within, scalars, bindings, groups)?;
            } else {
                bindings.push(raw(&from.buffer, false));
                pass.dispatch(&across, scalars, bindings, groups)?;
            }
        }
    }
    Ok(())
}
