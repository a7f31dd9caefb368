//! `linear`: few rows by `linear_rows`, many by `linear_tiles`. Both give the same bits, so which of
//! them runs is a matter of speed alone.

use super::linear_plan::{Plan, Tiling, classes, plan, rows_kernel, rows_shape, tiles_kernel};
use super::{grid_rows, stride};
use crate::memory::Scratch;
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::repack::Layout;
use crate::weight::Part;
use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::ops::Ops;
use forge_core::tensor::Tensor;
use forge_core::weights::quant::StorageType;
use forge_core::{Result, check};

const S16: Kernel = Kernel::new("quantize_activations", "quantize_activations_s16");
const PAIRS: Kernel = Kernel::new("quantize_activations", "quantize_activations_pairs");

const OP: &str = "linear";

/// A form of the activations that a kernel multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 16-bit integers with a scale for each 128 columns.
    S16,
    /// Sums of two f16 with a scale for each row.
    Pairs,
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

/// Form that the kernels of a type want.
pub(crate) fn form(storage: StorageType) -> Form {
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

/// Arguments of [`multiply`].
pub(crate) struct Product<'a> {
    pub(crate) op: &'static str,
    pub(crate) part: &'a Part,
    pub(crate) x: &'a Activations,
    /// Rows of `x`.
    pub(crate) x_rows: u32,
    pub(crate) plan: Plan,
    /// Rows in the order of experts; without it all rows in order.
    pub(crate) segments: Option<Segments<'a>>,
    /// The part's columns of the result.
    pub(crate) out: &'a Tensor<Cuda>,
}

/// Multiplies all rows (or all segments) with a part.
pub(crate) fn multiply(pass: &mut Pass<'_>, product: Product<'_>) -> Result<()> {
    let Product { op, part, x, x_rows, plan, segments, out } = product;
    let (tiles, chunks) = (index32(op, "tiles", part.tiles)?, index32(op, "chunks", part.chunks)?);
    let layers = segments.as_ref().map_or(x_rows.div_ceil(plan.width()), |s| s.count);
    let launch = match plan {
        Plan::Rows { eights } => rows_launch(pass, op, part, (tiles, chunks), (eights, layers))?,
        Plan::Tiles { tokens } => {
            let tiling = Tiling::new(part.storage, tokens);
            Launch::new(op, tiles_kernel(part.storage, tokens))
                .grid(layers, tiles.div_ceil(tiling.row_tiles), 1)
                .block(tiling.threads)
                .shared(tiling.shared_bytes)
        }
    };
    let (table, order, share) = match &segments {
        Some(s) => (s.table.into(), s.order.into(), s.share),
        None => (Arg::Null, Arg::Null, 1),
    };
    pass.launch(
        launch.overlap(),
        &[
            (&part.buffer).into(),
            Arg::Bytes(&part.buffer, part.scale_offset),
            index32(op, "rows", part.rows)?.into(),
            tiles.into(),
            chunks.into(),
            classes(chunks).into(),
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

/// Geometry of `linear_rows`.
fn rows_launch(
    pass: &Pass<'_>,
    op: &'static str,
    part: &Part,
    (tiles, chunks): (u32, u32),
    (eights, layers): (u32, u32),
) -> Result<Launch> {
    let shape = rows_shape(
        Layout::of(part.storage).bytes as u32,
        eights,
        (tiles, chunks),
        (pass.sms(), pass.max_shared_bytes()),
    );
    let launch = Launch::new(op, rows_kernel(part.storage, eights))
        .block(32 * shape.warps)
        .shared(shape.shared_bytes);
    // Every block stays for as many tiles as all blocks have on average.
    let resident = (pass.resident_blocks(&launch)? / layers).max(1);
    Ok(launch.grid(tiles.div_ceil(tiles.div_ceil(resident)), layers, 1))
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
    let (mut s16, mut pairs) = (None, None);
    let mut first = 0;
    for part in w.storage.parts(OP)? {
        let target = out.columns(first..first + part.rows)?;
        first += part.rows;
        let form = form(part.storage);
        let held = if form == Form::S16 { &mut s16 } else { &mut pairs };
        let x = converted(pass, held, x, form)?;
        let tiles = index32(OP, "tiles", part.tiles)?;
        let plan = plan(part.storage, tiles, rows, (pass.sms(), pass.max_shared_bytes()));
        let product = Product { op: OP, part, x, x_rows: rows, plan, segments: None, out: &target };
        multiply(pass, product)?;
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
