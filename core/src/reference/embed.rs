//! Row look-ups: from an embedding table, and from activations.

use super::{Cpu, view};
use crate::backend::Weight;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(super) fn embed(ids: &Tensor<Cpu>, table: &Weight<Cpu>, out: &Tensor<Cpu>) -> Result<()> {
    let (ids_view, mut out_view) = (view::read("embed", ids)?, view::write("embed", out)?);
    for r in 0..ids.rows() {
        let id = ids_view.int(r);
        let target = out_view.row(r);
        if id < 0 {
            target.fill(0.0);
            continue;
        }
        let mut row = (id as usize).min(table.rows - 1);
        for part in table.storage.iter() {
            if row < part.total_rows() {
                let bytes = part.row_bytes();
                let source = &part.data.as_slice()[row * bytes..(row + 1) * bytes];
                part.storage.dequantize(source, target)?;
                break;
            }
            row -= part.total_rows();
        }
    }
    Ok(())
}

pub(super) fn gather_rows(x: &Tensor<Cpu>, indices: &Tensor<Cpu>, out: &Tensor<Cpu>) -> Result<()> {
    let x_view = view::read("gather_rows", x)?;
    let index_view = view::read("gather_rows", indices)?;
    let mut out_view = view::write("gather_rows", out)?;
    for r in 0..indices.rows() {
        match index_view.int(r) {
            i if i < 0 => out_view.row(r).fill(0.0),
            i if (i as usize) < x.rows() => out_view.row(r).copy_from_slice(x_view.row(i as usize)),
            i => return Err(Error::device("gather_rows", format!("row {i} of {}", x.rows()))),
        }
    }
    Ok(())
}
