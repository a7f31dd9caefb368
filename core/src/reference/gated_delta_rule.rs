//! The gated delta rule, token by token: the exact definition.

use super::silu::sigmoid;
use super::{Cpu, view};
use crate::check::DeltaDims;
use crate::error::Result;
use crate::ops::HeadMap;
use crate::tensor::Tensor;
use rayon::prelude::*;

/// Tensors of the op.
pub(super) struct Tensors {
    pub(super) qkv: Tensor<Cpu>,
    pub(super) ba: Tensor<Cpu>,
    pub(super) head_constants: Tensor<Cpu>,
    pub(super) state: Tensor<Cpu>,
    pub(super) sequences: Tensor<Cpu>,
    pub(super) out: Tensor<Cpu>,
}

/// `ln(1 + e^x)`, which is `x` in f32 above 20.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

fn l2_normalized(x: &[f32], factor: f32) -> Vec<f32> {
    let sum: f32 = x.iter().map(|v| v * v).sum();
    let scale = factor / (sum + 1e-6).sqrt();
    x.iter().map(|v| v * scale).collect()
}

pub(super) fn gated_delta_rule(t: &Tensors, map: HeadMap, dims: DeltaDims) -> Result<()> {
    const OP: &str = "gated_delta_rule";
    let (qkv, ba) = (view::read(OP, &t.qkv)?, view::read(OP, &t.ba)?);
    let (constants, sequences) =
        (view::read(OP, &t.head_constants)?, view::read(OP, &t.sequences)?);
    let (mut state, mut out) = (view::write(OP, &t.state)?, view::write(OP, &t.out)?);
    let (dk, dv, hv) = (dims.key_dim, dims.value_dim, dims.value_heads);
    let keys_at = dims.key_heads * dk;
    for s in 0..dims.sequences {
        let &[first, rows, length, slot] = sequences.ints(s) else { continue };
        if rows == 0 {
            continue;
        }
        let (first, rows) = (first as usize, rows as usize);
        let fresh = length as usize == rows;
        let heads = state.row(slot as usize).par_chunks_mut(dk * dv).enumerate();
        let outputs: Vec<Vec<f32>> = heads
            .map(|(head, state)| {
                if fresh {
                    state.fill(0.0);
                }
                let key_head = match map {
                    HeadMap::Divide => head / (hv / dims.key_heads),
                    HeadMap::Modulo => head % dims.key_heads,
                };
                let mut result = Vec::with_capacity(rows * dv);
                for r in first..first + rows {
                    let row = qkv.row(r);
                    let q = l2_normalized(&row[key_head * dk..][..dk], 1.0 / (dk as f32).sqrt());
                    let k = l2_normalized(&row[keys_at + key_head * dk..][..dk], 1.0);
                    let v = &row[2 * keys_at + head * dv..][..dv];
                    let beta = sigmoid(ba.row(r)[head]);
                    let step = softplus(ba.row(r)[hv + head] + constants.row(1)[head]);
                    let decay = (constants.row(0)[head] * step).exp();
                    result.extend(delta_step(state, &q, &k, v, beta, decay));
                }
                result
            })
            .collect();
        for r in 0..rows {
            for (head, result) in outputs.iter().enumerate() {
                out.row(first + r)[head * dv..][..dv].copy_from_slice(&result[r * dv..][..dv]);
            }
        }
    }
    Ok(())
}

/// `S <- decay S; delta = beta (v - S^T k); S <- S + k delta^T`, returns `S^T q`.
fn delta_step(
    state: &mut [f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    beta: f32,
    decay: f32,
) -> Vec<f32> {
    let dv = v.len();
    let mut read = vec![0.0; dv];
    for (row, k) in state.chunks_mut(dv).zip(k) {
        for (s, read) in row.iter_mut().zip(&mut read) {
            *s *= decay;
            *read += *s * k;
        }
    }
    let delta: Vec<f32> = v.iter().zip(&read).map(|(v, read)| beta * (v - read)).collect();
    let mut out = vec![0.0; dv];
    for ((row, k), q) in state.chunks_mut(dv).zip(k).zip(q) {
        for ((s, delta), out) in row.iter_mut().zip(&delta).zip(&mut out) {
            *s += k * delta;
            *out += *s * q;
        }
    }
    out
}
