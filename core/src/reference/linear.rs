//! `x W^T` straight from the stored blocks, for plain weights and for routed experts.

use super::matmul::Matmul;
use super::{Cpu, view};
use crate::backend::Weight;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(super) fn linear(x: &Tensor<Cpu>, w: &Weight<Cpu>, out: &Tensor<Cpu>) -> Result<()> {
    let rows = x.rows();
    let (x, mut out) = (view::read("linear", x)?, view::write("linear", out)?);
    let (out, stride) = out.flat();
    let (x, x_stride) = x.flat();
    let mut first = 0;
    for part in w.storage.iter() {
        let matmul = Matmul {
            storage: part.storage,
            weights: part.data.as_slice(),
            out_rows: part.total_rows(),
            columns: w.columns,
            x,
            x_stride,
            rows,
        };
        matmul.run(&mut out[first..], stride)?;
        first += part.total_rows();
    }
    Ok(())
}

pub(super) fn moe_linear(
    x: &Tensor<Cpu>,
    w: &Weight<Cpu>,
    ids: &Tensor<Cpu>,
    k: usize,
    shared: bool,
    out: &Tensor<Cpu>,
) -> Result<()> {
    const OP: &str = "moe_linear";
    let rows = ids.rows();
    let (x, ids, mut out) = (view::read(OP, x)?, view::read(OP, ids)?, view::write(OP, out)?);
    for r in 0..rows {
        for (j, id) in ids.ints(r).iter().enumerate() {
            let out = out.row(r * k + j);
            if *id < 0 {
                out.fill(0.0);
                continue;
            }
            let expert = *id as usize;
            if expert >= w.experts {
                return Err(Error::device(OP, format!("expert {expert} of {}", w.experts)));
            }
            let x = x.row(if shared { r } else { r * k + j });
            let mut first = 0;
            for part in w.storage.iter() {
                let bytes = part.data.len() / w.experts;
                let data = &part.data.as_slice()[expert * bytes..(expert + 1) * bytes];
                let matmul = Matmul {
                    storage: part.storage,
                    weights: data,
                    out_rows: part.total_rows() / w.experts,
                    columns: w.columns,
                    x,
                    x_stride: w.columns,
                    rows: 1,
                };
                matmul.run(&mut out[first..], w.rows)?;
                first += part.total_rows() / w.experts;
            }
        }
    }
    Ok(())
}
