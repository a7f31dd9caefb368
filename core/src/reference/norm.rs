//! RMS norms: `x / sqrt(mean(x^2) + eps) * w` over rows, heads, and with a SiLU gate.

use super::silu::silu;
use super::{Cpu, view};
use crate::error::Result;
use crate::tensor::{Heads, Tensor};
use rayon::prelude::*;

fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let sum: f32 = x.iter().map(|v| v * v).sum();
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

pub(super) fn rms_norm(
    x: &Tensor<Cpu>,
    w: &Tensor<Cpu>,
    eps: f32,
    out: &Tensor<Cpu>,
) -> Result<()> {
    let (x, w) = (view::read("rms_norm", x)?, view::read("rms_norm", w)?);
    let weights = &w.flat().0[..out.row_len()];
    view::write("rms_norm", out)?.par_rows().for_each(|(r, out)| {
        let x = x.row(r);
        let factor = inverse_rms(x, eps);
        for ((out, x), w) in out.iter_mut().zip(x).zip(weights) {
            *out = x * factor * w;
        }
    });
    Ok(())
}

pub(super) fn rms_norm_heads(x: &Heads<Cpu>, w: &Tensor<Cpu>, eps: f32) -> Result<()> {
    let w = view::read("rms_norm_heads", w)?;
    let weights = w.flat().0;
    let mut view = view::write("rms_norm_heads", &x.tensor)?;
    for r in 0..x.rows() {
        for head in view.row(r).chunks_mut(x.stride).take(x.heads) {
            let factor = inverse_rms(&head[..x.dim], eps);
            for (value, w) in head[..x.dim].iter_mut().zip(weights) {
                *value = *value * factor * w;
            }
        }
    }
    Ok(())
}

pub(super) fn gated_rms_norm(
    x: &Tensor<Cpu>,
    gate: &Tensor<Cpu>,
    w: &Tensor<Cpu>,
    eps: f32,
    out: &Tensor<Cpu>,
) -> Result<()> {
    const OP: &str = "gated_rms_norm";
    let dim = w.rows();
    let (x, gate, w) = (view::read(OP, x)?, view::read(OP, gate)?, view::read(OP, w)?);
    let weights = &w.flat().0[..dim];
    view::write(OP, out)?.par_rows().for_each(|(r, out)| {
        let (x, gate) = (x.row(r), gate.row(r));
        for start in (0..out.len()).step_by(dim) {
            let factor = inverse_rms(&x[start..start + dim], eps);
            for (i, w) in weights.iter().enumerate() {
                out[start + i] = w * (x[start + i] * factor) * silu(gate[start + i]);
            }
        }
    });
    Ok(())
}
