//! `embed`: one dispatch per segment of the table.

use super::T;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read, write};
use crate::pipeline::Shader;
use crate::weights::{UNIT, weight_shader};
use forge_core::backend::Weight;
use forge_core::check;
use forge_core::error::Result;
use forge_core::weights::quant::StorageType;

const OP: &str = "embed";

pub(super) fn shader(storage: StorageType) -> Shader {
    weight_shader(OP, storage, "rrrw", "r-rw", 64)
}

pub(super) fn record(
    pass: &mut WgpuPass<'_>,
    ids: &T,
    table: &Weight<WgpuBackend>,
    out: &T,
) -> Result<()> {
    let (rows, columns) = check::embed(ids, table, out)?;
    let units = columns.div_ceil(UNIT);
    for segment in table.storage.0.iter() {
        let scalars = Scalars::new(
            OP,
            &[
                rows,
                columns,
                units,
                columns / segment.storage.block().0,
                segment.row_words,
                segment.first_row,
                segment.rows,
                table.rows,
                ids.offset,
                ids.row_stride,
                out.offset,
                out.row_stride,
            ],
        )?;
        let mut bindings = vec![raw(&segment.buffer, false)];
        bindings.extend(segment.grids.iter().map(|grids| raw(grids, false)));
        bindings.push(read(OP, "ids", ids)?);
        bindings.push(write(OP, "out", out)?);
        pass.dispatch_elements(&shader(segment.storage), scalars, bindings, rows * units)?;
    }
    Ok(())
}
