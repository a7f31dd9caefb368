//! `x W^T` straight from the stored blocks, for plain weights and for routed experts.

use super::{Cpu, view};
use crate::backend::Weight;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::weights::quant::StorageType;

fn matmul(
    bytes: &[u8],
    storage: StorageType,
    columns: usize,
    x: (&[f32], usize),
    rows: usize,
    out: (&mut [f32], usize),
) -> Result<()> {
    let row_bytes = storage.row_bytes(columns).unwrap_or(1);
    let mut w = vec![0.0; columns];
    for (o, row) in bytes.chunks(row_bytes).enumerate() {
        storage.dequantize(row, &mut w)?;
        for r in 0..rows {
            let x = &x.0[r * x.1..][..columns];
            out.0[r * out.1 + o] = x.iter().zip(&w).map(|(a, b)| a * b).sum();
        }
    }
    Ok(())
}

pub(super) fn linear(x: &Tensor<Cpu>, w: &Weight<Cpu>, out: &Tensor<Cpu>) -> Result<()> {
    let rows = x.rows();
    let (x, mut out) = (view::read("linear", x)?, view::write("linear", out)?);
    let (out, stride) = out.flat();
    let mut first = 0;
    for part in w.storage.iter() {
        let target = (&mut out[first..], stride);
        matmul(part.data.as_slice(), part.storage, w.columns, x.flat(), rows, target)?;
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
                let target = (&mut out[first..], w.rows);
                matmul(data, part.storage, w.columns, (x, w.columns), 1, target)?;
                first += part.total_rows() / w.experts;
            }
        }
    }
    Ok(())
}
