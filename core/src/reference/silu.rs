//! Gates: `silu(gate) * up` and `x * sigmoid(gate)`.

use super::{Cpu, view};
use crate::error::Result;
use crate::tensor::{Heads, Tensor};
use rayon::prelude::*;

/// Logistic function.
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x * sigmoid(x)`.
pub(super) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

pub(super) fn silu_mul(gate_up: &Tensor<Cpu>, out: &Tensor<Cpu>) -> Result<()> {
    let gate_up = view::read("silu_mul", gate_up)?;
    view::write("silu_mul", out)?.par_rows().for_each(|(r, out)| {
        let (gate, up) = gate_up.row(r).split_at(out.len());
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = silu(*gate) * up;
        }
    });
    Ok(())
}

pub(super) fn sigmoid_mul(gate: &Heads<Cpu>, x: &Tensor<Cpu>) -> Result<()> {
    let gates = view::read("sigmoid_mul", &gate.tensor)?;
    view::write("sigmoid_mul", x)?.par_rows().for_each(|(r, x)| {
        let gates = gates.row(r).chunks(gate.stride);
        for (x, gate) in x.chunks_mut(gate.dim).zip(gates) {
            for (x, gate) in x.iter_mut().zip(gate) {
                *x *= sigmoid(*gate);
            }
        }
    });
    Ok(())
}
