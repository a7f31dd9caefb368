//! `linear`: matrix times few rows or tiles of many, one dispatch per segment of the weight.

use super::T;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read, write};
use crate::pipeline::Shader;
use crate::weights::{UNIT, weight_shader};
use forge_core::backend::Weight;
use forge_core::check;
use forge_core::error::{Error, Result};
use forge_core::weights::quant::StorageType;

const OP: &str = "linear";
/// Most rows that share one read of the weights in `linear_mat_vec`.
const MAX_VECTOR_ROWS: usize = 8;
/// Tiles of `linear_mat_mul` below which smaller ones fill the device better.
const WANTED_TILES: usize = 64;

/// How the tile of `linear_mat_mul` is chosen for more than 64 rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TileRule {
    /// The large one where enough of them exist to fill the device.
    #[default]
    Size,
    /// The large one: small comparisons cover it too.
    Large,
    /// The small one: the large one failed the comparison on this adapter.
    Small,
}

/// Tile of `linear_mat_mul`: outputs and rows of an invocation; a tile has 16 times as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    /// 64 x 64.
    Small = 4,
    /// 128 x 128.
    Large = 8,
}

impl Tile {
    fn choose(outputs: usize, rows: usize, rule: TileRule) -> Self {
        let tiles = outputs.div_ceil(128) * rows.div_ceil(128);
        let large = match rule {
            TileRule::Size => tiles >= WANTED_TILES,
            TileRule::Large => true,
            TileRule::Small => false,
        };
        if rows > 64 && large { Self::Large } else { Self::Small }
    }
    fn lines(self) -> usize {
        16 * self as usize
    }
}

/// How activations are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activations {
    /// Four at once.
    Quads,
    /// One by one, with a check of the row's end.
    Scalars,
}

impl Activations {
    /// Quads if every quad of every row is aligned and inside its row.
    pub(super) fn of(x: &T) -> Self {
        let aligned = x.offset.is_multiple_of(4) && x.row_stride.is_multiple_of(4);
        if aligned && x.row_len().is_multiple_of(UNIT) { Self::Quads } else { Self::Scalars }
    }
    /// The snippet that loads them.
    pub(super) fn snippet(self) -> &'static str {
        match self {
            Self::Quads => "activations_vec4",
            Self::Scalars => "activations_scalar",
        }
    }
}

/// `linear_mat_vec` for `rows` up to [`MAX_VECTOR_ROWS`].
pub(super) fn vector_shader(storage: StorageType, activations: Activations, rows: usize) -> Shader {
    with_constants(storage, activations, rows, Tile::Small).entry("linear_mat_vec")
}

/// `linear_mat_mul`.
pub(super) fn tile_shader(storage: StorageType, activations: Activations, tile: Tile) -> Shader {
    with_constants(storage, activations, 1, tile).entry("linear_mat_mul")
}

/// The file needs the constants of both entry points.
fn with_constants(s: StorageType, activations: Activations, rows: usize, tile: Tile) -> Shader {
    weight_shader(OP, s, "rrrw", "r-rw", 64)
        .snippets(&[activations.snippet()])
        .constant("ROWS", rows as u32)
        .constant("OUTPUTS", outputs(rows) as u32)
        .constant("LANE_OUTPUTS", tile as u32)
        .constant("LANE_ROWS", tile as u32)
}

/// Outputs of a workgroup of `linear_mat_vec`: more share the loads of activations, but with many
/// rows their sums no longer fit in registers.
fn outputs(rows: usize) -> usize {
    if rows <= 4 { 4 } else { 2 }
}

pub(super) fn record(
    pass: &mut WgpuPass<'_>,
    x: &T,
    w: &Weight<WgpuBackend>,
    out: &T,
) -> Result<()> {
    let rows = check::linear(x, w, out)?;
    if rows == 0 {
        return Ok(());
    }
    for segment in w.storage.0.iter() {
        let scalars = Scalars::new(
            OP,
            &[
                rows,
                w.columns,
                w.columns.div_ceil(UNIT),
                w.columns / segment.storage.block().0,
                segment.row_words,
                segment.rows,
                x.offset,
                x.row_stride,
                out.offset + segment.first_row,
                out.row_stride,
            ],
        )?;
        let mut bindings = vec![raw(&segment.buffer, false)];
        bindings.extend(segment.grids.iter().map(|grids| raw(grids, false)));
        bindings.push(read(OP, "x", x)?);
        bindings.push(write(OP, "out", out)?);
        if rows <= MAX_VECTOR_ROWS {
            let shader = vector_shader(segment.storage, Activations::of(x), rows);
            let count = segment.rows.div_ceil(outputs(rows));
            pass.dispatch_flat(&shader, scalars, bindings, count)?;
        } else {
            let tile = Tile::choose(segment.rows, rows, pass.backend.tile_rule());
            let shader = tile_shader(segment.storage, Activations::of(x), tile);
            let groups = [groups(segment.rows, tile)?, groups(rows, tile)?, 1];
            pass.dispatch(&shader, scalars, bindings, groups)?;
        }
    }
    Ok(())
}

fn groups(count: usize, tile: Tile) -> Result<u32> {
    u32::try_from(count.div_ceil(tile.lines()))
        .map_err(|_| Error::unsupported(OP, format!("{count} rows are too many")))
}
