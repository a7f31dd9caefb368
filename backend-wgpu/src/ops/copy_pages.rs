//! `copy_pages`: one dispatch per pair of buffers that state and pool lie in.

use super::store_kv::pool_parts;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;
use forge_core::ops::{CopyDirection, CopyPages};

const OP: &str = "copy_pages";
/// Most workgroups that share a range: enough to fill a device, few enough to loop.
const GROUPS: usize = 1024;

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rww", 256)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, op: CopyPages<'_, WgpuBackend>) -> Result<()> {
    let sizes = check::copy_pages(&op)?;
    let element_bytes = op.state.dtype.bytes();
    let groups = [op.words.div_ceil(256).min(GROUPS) as u32, 1, 1];
    for state in op.state.buffer.row_parts(op.state) {
        for pages in pool_parts(OP, op.pool)? {
            let scalars = Scalars::new(
                OP,
                &[
                    op.words,
                    op.page_start,
                    op.state_start,
                    sizes.row,
                    sizes.block,
                    op.table.offset,
                    op.table.row_stride,
                    state.first_row,
                    state.rows,
                    state.offset * element_bytes / 4,
                    pages.first_row,
                    pages.rows,
                    pages.offset,
                    usize::from(op.direction == CopyDirection::ToPages),
                ],
            )?;
            let bindings = vec![
                read(OP, "table", op.table)?,
                raw(&state.buffer, true),
                raw(&pages.buffer, true),
            ];
            pass.dispatch(&shader(), scalars, bindings, groups)?;
        }
    }
    Ok(())
}
