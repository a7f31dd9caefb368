//! `moe_linear`: entries grouped by expert, then `linear_rows` or `linear_tiles` for each group.

use super::linear::{Product, Segments, form, multiply, quantize};
use super::linear_plan::experts_plan;
use super::{contiguous, grid_rows};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::tensor::Tensor;
use forge_core::{Error, Result, check};

const GROUP: Kernel = Kernel::new("moe_group", "moe_group");
const OP: &str = "moe_linear";
/// Experts that the grouping kernel has threads for; one more stands for entries without an expert.
const MAX_EXPERTS: usize = 1023;
/// Largest second dimension of a grid.
const MAX_SEGMENTS: u32 = 65_535;

pub(crate) fn moe_linear(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    w: &Weight<Cuda>,
    ids: &Tensor<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, k, shared) = check::moe_linear(x, w, ids, out)?;
    contiguous(OP, "ids", ids)?;
    let (entries, x_rows) = (index32(OP, "entries", rows * k)?, grid_rows(OP, x.rows())?);
    if entries == 0 {
        return Ok(());
    }
    let share = if shared { index32(OP, "experts of a row", k)? } else { 1 };
    if w.experts > MAX_EXPERTS {
        return Err(Error::unsupported(
            OP,
            format!("{} experts, at most {MAX_EXPERTS}", w.experts),
        ));
    }
    let experts = w.experts as u32;
    let parts = w.storage.parts(OP)?;
    let limit = pass.max_shared_bytes();
    let plan =
        experts_plan(parts.iter().map(|part| part.storage), rows as u32, entries / experts, limit);
    let width = plan.width();
    let count = entries.min(entries / width + experts + 1);
    if count > MAX_SEGMENTS {
        return Err(Error::unsupported(
            OP,
            format!("{count} groups of rows, at most {MAX_SEGMENTS}"),
        ));
    }
    let order = pass.scratch(entries as usize * 4)?;
    let table = pass.scratch(count as usize * 16)?;
    pass.launch(
        Launch::new(OP, GROUP).block(1024).overlap(),
        &[
            ids.into(),
            entries.into(),
            experts.into(),
            width.into(),
            count.into(),
            (&order).into(),
            (&table).into(),
        ],
    )?;
    let mut activations: Vec<(_, _)> = Vec::new();
    let mut first = 0;
    for part in parts {
        let target = out.columns(first..first + part.rows)?;
        first += part.rows;
        let form = form(part.storage);
        if !activations.iter().any(|(held, _)| *held == form) {
            activations.push((form, quantize(pass, OP, x, form)?));
        }
        let Some((_, x)) = activations.iter().find(|(held, _)| *held == form) else { continue };
        let segments = Some(Segments { table: &table, order: &order, count, share });
        multiply(pass, Product { op: OP, part, x, x_rows, plan, segments, out: &target })?;
    }
    Ok(())
}
