//! `gated_delta_rule`: one workgroup per 32 columns of a state, one dispatch per part of the pool.

use super::contiguous;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read, write};
use crate::pipeline::Shader;
use forge_core::check::{self, DeltaDims};
use forge_core::error::{Error, Result};
use forge_core::ops::{GatedDeltaRule, HeadMap};

const OP: &str = "gated_delta_rule";
/// State columns of a workgroup.
const COLUMNS: usize = 32;
/// Longest key: query, key and partial sums lie in workgroup memory, a quarter in registers.
const MAX_KEY_DIM: usize = 512;

pub(super) fn shader(key_dim: usize, value_dim: usize) -> Shader {
    Shader::new(OP, "rrrrww", 128)
        .constant("KEY_DIM", key_dim as u32)
        .constant("VALUE_DIM", value_dim as u32)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, op: GatedDeltaRule<'_, WgpuBackend>) -> Result<()> {
    let DeltaDims { rows, sequences: count, key_heads, value_heads, key_dim, value_dim, .. } =
        check::gated_delta_rule(&op)?;
    let GatedDeltaRule { qkv, ba, head_constants, state, sequences, head_map, out, .. } = op;
    if key_dim > MAX_KEY_DIM {
        return Err(Error::unsupported(
            format!("{OP} with keys of {key_dim}"),
            format!("at most {MAX_KEY_DIM}"),
        ));
    }
    contiguous(OP, "head_constants", head_constants)?;
    contiguous(OP, "state", state)?;
    contiguous(OP, "sequences", sequences)?;
    for part in state.buffer.row_parts(state) {
        let scalars = Scalars::new(
            OP,
            &[
                rows,
                count,
                key_heads,
                value_heads,
                usize::from(head_map == HeadMap::Modulo),
                part.first_row,
                part.rows,
                qkv.offset,
                qkv.row_stride,
                ba.offset,
                ba.row_stride,
                head_constants.offset,
                part.offset,
                sequences.offset,
                out.offset,
                out.row_stride,
            ],
        )?;
        let bindings = vec![
            read(OP, "qkv", qkv)?,
            read(OP, "ba", ba)?,
            read(OP, "head_constants", head_constants)?,
            read(OP, "sequences", sequences)?,
            raw(&part.buffer, true),
            write(OP, "out", out)?,
        ];
        let groups = [value_dim.div_ceil(COLUMNS) as u32, value_heads as u32, count as u32 + 1];
        pass.dispatch(&shader(key_dim, value_dim), scalars, bindings, groups)?;
    }
    Ok(())
}
