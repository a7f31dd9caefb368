//! `sum += x`.

use super::{Cpu, view};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) fn add(x: &Tensor<Cpu>, sum: &Tensor<Cpu>) -> Result<()> {
    let (x_view, mut sum_view) = (view::read("add", x)?, view::write("add", sum)?);
    for r in 0..x.rows() {
        for (s, x) in sum_view.row(r).iter_mut().zip(x_view.row(r)) {
            *s += x;
        }
    }
    Ok(())
}
