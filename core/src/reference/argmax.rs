//! Index of the largest value of each row; the lowest index wins ties; -1 on NaN.

use super::{Cpu, view};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) fn argmax(logits: &Tensor<Cpu>, out: &Tensor<Cpu>) -> Result<()> {
    let (logits_view, mut out_view) = (view::read("argmax", logits)?, view::write("argmax", out)?);
    for r in 0..logits.rows() {
        let mut best = 0;
        let row = logits_view.row(r);
        for (i, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = i;
            }
        }
        let poisoned = row.iter().any(|v| v.is_nan());
        out_view.ints(r)[0] = if poisoned { -1 } else { best as i32 };
    }
    Ok(())
}
