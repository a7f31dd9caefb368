//! Mixture of experts: routing and the weighted sum.

use super::silu::sigmoid;
use super::{Cpu, view};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) fn moe_route(
    logits: &Tensor<Cpu>,
    ids: &Tensor<Cpu>,
    weights: &Tensor<Cpu>,
) -> Result<()> {
    const OP: &str = "moe_route";
    let rows = logits.rows();
    let logits = view::read(OP, logits)?;
    let (mut ids, mut weights) = (view::write(OP, ids)?, view::write(OP, weights)?);
    for r in 0..rows {
        let logits = logits.row(r);
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        let weights = weights.row(r);
        let best = logits[order[0]];
        let mut sum = 0.0;
        for (weight, expert) in weights.iter_mut().zip(&order) {
            *weight = (logits[*expert] - best).exp();
            sum += *weight;
        }
        weights.iter_mut().for_each(|w| *w /= sum);
        for (id, expert) in ids.ints(r).iter_mut().zip(&order) {
            *id = *expert as i32;
        }
    }
    Ok(())
}

pub(super) fn moe_combine(
    experts: &Tensor<Cpu>,
    weights: &Tensor<Cpu>,
    shared: &Tensor<Cpu>,
    shared_gate: &Tensor<Cpu>,
    out: &Tensor<Cpu>,
) -> Result<()> {
    const OP: &str = "moe_combine";
    let (rows, k) = (weights.rows(), weights.row_len());
    let (experts, weights) = (view::read(OP, experts)?, view::read(OP, weights)?);
    let (shared, gate) = (view::read(OP, shared)?, view::read(OP, shared_gate)?);
    let mut out = view::write(OP, out)?;
    for r in 0..rows {
        let out = out.row(r);
        out.fill(0.0);
        for (j, weight) in weights.row(r).iter().enumerate() {
            for (out, x) in out.iter_mut().zip(experts.row(r * k + j)) {
                *out += weight * x;
            }
        }
        let gate = sigmoid(gate.row(r)[0]);
        for (out, x) in out.iter_mut().zip(shared.row(r)) {
            *out += gate * x;
        }
    }
    Ok(())
}
