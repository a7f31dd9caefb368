//! `linear`: few rows by `linear_rows`, many by `linear_tiles`.

use super::linear_plan::{dequantize_kernel, eights, few_rows, rows_kernel, rows_shape, tiling};
use super::{grid_rows, stride};
use crate::memory::Scratch;
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::repack::{Layout, TILE_ROWS};
use crate::weight::Part;
use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::ops::Ops;
use forge_core::tensor::Tensor;
use forge_core::weights::quant::StorageType;
use forge_core::{Result, check};

const S16: Kernel = Kernel::new("quantize_activations", "quantize_activations_s16");
const PAIRS: Kernel = Kernel::new("quantize_activations", "quantize_activations_pairs");
const TILES: Kernel = Kernel::new("quantize_activations", "quantize_activations_tiles");

const OP: &str = "linear";

/// f16 weights of one slab, if that fills the device: they then stay in the L2 cache between the
/// kernels that write and read them.
const SLAB_BYTES: usize = 32 << 20;

/// A form of the activations that a kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 16-bit integers with a scale for each 32 columns.
    S16,
    /// Sums of two f16 with a scale for each row.
    Pairs,
    /// f16 in tiles of 16 rows with a scale for each row.
    Tiles,
}

/// Activations in one form.
pub(crate) struct Activations {
    pub(crate) quants: Scratch,
    pub(crate) scales: Scratch,
    /// Groups of 32 columns, padded to a multiple of 8.
    pub(crate) groups: u32,
}

/// Converts `x`.
pub(crate) fn quantize(
    pass: &mut Pass<'_>,
    op: &'static str,
    x: &Tensor<Cuda>,
    form: Form,
) -> Result<Activations> {
    let rows = grid_rows(op, x.rows())?;
    let columns = index32(op, "columns", x.row_len())?;
    let groups = columns.div_ceil(256) * 8;
    let (rows_held, width) = (x.rows(), groups as usize);
    let (kernel, quant_bytes, scales, grid) = match form {
        Form::S16 => {
            (S16, rows_held * width * 64, rows_held * width * 4, (groups.div_ceil(32), rows))
        }
        Form::Pairs => (PAIRS, rows_held * width * 128, rows_held, (rows, 1)),
        Form::Tiles => {
            (TILES, rows_held.next_multiple_of(TILE_ROWS) * width * 64, rows_held, (rows, 1))
        }
    };
    let quants = pass.scratch(quant_bytes)?;
    let scales = pass.scratch(scales * 4)?;
    let launch = Launch::new(op, kernel).grid(grid.0, grid.1, 1).block(256).overlap();
    pass.launch(
        launch,
        &[x.into(), stride(x), columns.into(), groups.into(), (&quants).into(), (&scales).into()],
    )?;
    Ok(Activations { quants, scales, groups })
}

/// Form that the kernel for few rows wants.
pub(crate) fn rows_form(storage: StorageType) -> Form {
    match storage {
        StorageType::F32 | StorageType::F16 | StorageType::Bf16 => Form::Pairs,
        _ => Form::S16,
    }
}

/// Entries that experts chose, sorted by `moe_group`.
pub(crate) struct Segments<'a> {
    /// i32 `[count, 4]`.
    pub(crate) table: &'a Scratch,
    /// i32 `[entries]`.
    pub(crate) order: &'a Scratch,
    /// Segments.
    pub(crate) count: u32,
    /// Entries that read one row of the activations.
    pub(crate) share: u32,
}

/// Arguments of [`launch_rows`].
pub(crate) struct RowsLaunch<'a> {
    pub(crate) op: &'static str,
    pub(crate) part: &'a Part,
    pub(crate) x: &'a Activations,
    /// Rows of `x`.
    pub(crate) x_rows: u32,
    /// Eights of rows that a block multiplies: 1, 2 or 4.
    pub(crate) eights: u32,
    /// Rows in the order of experts; without it all rows in order.
    pub(crate) segments: Option<Segments<'a>>,
    /// The part's columns of the result.
    pub(crate) out: &'a Tensor<Cuda>,
}

/// Multiplies all rows (or all segments) with a part.
pub(crate) fn launch_rows(pass: &mut Pass<'_>, launch: RowsLaunch<'_>) -> Result<()> {
    let RowsLaunch { op, part, x, x_rows, eights, segments, out } = launch;
    let (tiles, chunks) = (index32(op, "tiles", part.tiles)?, index32(op, "chunks", part.chunks)?);
    let layers = segments.as_ref().map_or(x_rows.div_ceil(8 * eights), |s| s.count);
    let shape = rows_shape(
        Layout::of(part.storage).bytes as u32,
        eights,
        (tiles, chunks),
        (pass.sms(), pass.max_shared_bytes()),
    );
    let launch = Launch::new(op, rows_kernel(part.storage, eights))
        .block(32 * shape.warps)
        .shared(shape.shared_bytes)
        .overlap();
    // Every block stays for as many tiles as all blocks have on average.
    let resident = (pass.resident_blocks(&launch)? / layers).max(1);
    let blocks = tiles.div_ceil(tiles.div_ceil(resident));
    let (table, order, share) = match &segments {
        Some(s) => (s.table.into(), s.order.into(), s.share),
        None => (Arg::Null, Arg::Null, 1),
    };
    pass.launch(
        launch.grid(blocks, layers, 1),
        &[
            (&part.buffer).into(),
            Arg::Bytes(&part.buffer, part.scale_offset),
            index32(op, "rows", part.rows)?.into(),
            tiles.into(),
            chunks.into(),
            (&x.quants).into(),
            (&x.scales).into(),
            x.groups.into(),
            out.into(),
            stride(out),
            x_rows.into(),
            table,
            order,
            share.into(),
        ],
    )
}

/// Multiplies all rows with `part` on f16 tensor cores, slab by slab.
fn launch_tiles(
    pass: &mut Pass<'_>,
    part: &Part,
    x: &Activations,
    tokens: u32,
    out: &Tensor<Cuda>,
) -> Result<()> {
    let layout = Layout::of(part.storage);
    let steps = part.chunks * layout.columns / 16;
    let tiling = tiling(index32(OP, "rows", part.rows)?, tokens, pass.sms());
    // F16 records are what the kernel reads; other types become that, a slab at a time.
    let (slab_tiles, slab) = if part.storage == StorageType::F16 {
        (part.tiles, None)
    } else {
        let tiles = tiling.slab_tiles(tokens, pass.sms(), steps * 512, SLAB_BYTES);
        let tiles = tiles.min(part.tiles);
        (tiles, Some(pass.scratch(tiles * steps * 512)?))
    };
    for first in (0..part.tiles).step_by(slab_tiles.max(1)) {
        let tiles = slab_tiles.min(part.tiles - first);
        let rows = (part.rows - first * TILE_ROWS).min(tiles * TILE_ROWS);
        let scales = Arg::Bytes(&part.buffer, part.scale_offset + first * TILE_ROWS * 4);
        let weights = match &slab {
            None => (&part.buffer).into(),
            Some(slab) => {
                dequantize(pass, part, (first, tiles), slab)?;
                slab.into()
            }
        };
        let launch = Launch::new(OP, tiling.kernel)
            .grid(tokens.div_ceil(tiling.tokens), (rows as u32).div_ceil(tiling.rows), 1)
            .block(tiling.threads)
            .shared(tiling.shared_bytes)
            .overlap();
        let columns = out.columns(first * TILE_ROWS..first * TILE_ROWS + rows)?;
        pass.launch(
            launch,
            &[
                weights,
                scales,
                index32(OP, "tiles", tiles)?.into(),
                (rows as u32).into(),
                index32(OP, "steps", steps)?.into(),
                (&x.quants).into(),
                (&x.scales).into(),
                tokens.div_ceil(TILE_ROWS as u32).into(),
                tokens.into(),
                (x.groups * 2).into(),
                (&columns).into(),
                stride(&columns),
            ],
        )?;
    }
    Ok(())
}

fn dequantize(
    pass: &mut Pass<'_>,
    part: &Part,
    (first, tiles): (usize, usize),
    target: &Scratch,
) -> Result<()> {
    let items = index32(OP, "records", tiles * part.chunks)?;
    let launch = Launch::new(OP, dequantize_kernel(part.storage))
        .grid(items.div_ceil(8), 1, 1)
        .block(256)
        .overlap();
    pass.launch(
        launch,
        &[
            (&part.buffer).into(),
            Arg::Bytes(&part.buffer, part.scale_offset),
            index32(OP, "tiles", first)?.into(),
            index32(OP, "tiles", tiles)?.into(),
            index32(OP, "chunks", part.chunks)?.into(),
            target.into(),
        ],
    )
}

pub(crate) fn linear(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    w: &Weight<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let rows = grid_rows(OP, check::linear(x, w, out)?)?;
    if rows == 0 {
        return Ok(());
    }
    let (mut s16, mut pairs, mut tiles) = (None, None, None);
    let mut first = 0;
    for part in w.storage.parts(OP)? {
        let target = out.columns(first..first + part.rows)?;
        first += part.rows;
        if few_rows(part.storage, rows) {
            let form = rows_form(part.storage);
            let held = if form == Form::S16 { &mut s16 } else { &mut pairs };
            let x = converted(pass, held, x, form)?;
            let (eights, out) = (eights(rows), &target);
            let launch = RowsLaunch { op: OP, part, x, x_rows: rows, eights, segments: None, out };
            launch_rows(pass, launch)?;
        } else {
            let x = converted(pass, &mut tiles, x, Form::Tiles)?;
            launch_tiles(pass, part, x, rows, &target)?;
        }
    }
    Ok(())
}

/// The activations in `form`, converted when first asked for.
fn converted<'a>(
    pass: &mut Pass<'_>,
    held: &'a mut Option<Activations>,
    x: &Tensor<Cuda>,
    form: Form,
) -> Result<&'a Activations> {
    match held {
        Some(activations) => Ok(activations),
        None => Ok(held.insert(quantize(pass, "linear", x, form)?)),
    }
}

pub(crate) fn linear_silu_mul(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    w: &Weight<Cuda>,
    scratch: &mut Tensor<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    pass.linear(x, w, scratch)?;
    pass.silu_mul(scratch, out)
}
