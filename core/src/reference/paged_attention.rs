//! Softmax attention of each row over the paged keys and values of its sequence.

use super::{Cpu, kv_codec, view};
use crate::check::AttentionDims;
use crate::error::Result;
use crate::kv::{BLOCK_TOKENS, KvPool};
use crate::tensor::{Heads, Tensor};
use rayon::prelude::*;

#[allow(clippy::too_many_arguments, reason = "the fields of one op, already checked")]
pub(super) fn paged_attention(
    q: &Heads<Cpu>,
    pool: &KvPool<Cpu>,
    sequences: &Tensor<Cpu>,
    block_table: &Tensor<Cpu>,
    scale: f32,
    dims: AttentionDims,
    out: &Tensor<Cpu>,
) -> Result<()> {
    const OP: &str = "paged_attention";
    let (q_view, pages) = (view::read(OP, &q.tensor)?, view::read(OP, &pool.pages)?);
    let (sequences, table) = (view::read(OP, sequences)?, view::read(OP, block_table)?);
    let mut out_view = view::write(OP, out)?;
    let (layout, width) = (pool.layout, out.row_len());
    for s in 0..dims.sequences {
        let &[first, rows, length, _] = sequences.ints(s) else { continue };
        let (first, rows, length) = (first as usize, rows as usize, length as usize);
        if rows == 0 {
            continue;
        }
        // Per KV head: keys and values of the sequence once, then every row that attends to them.
        let heads: Vec<Vec<f32>> = (0..layout.kv_heads)
            .into_par_iter()
            .map(|head| {
                let keys = decode_head(pool, pages.bytes(), table.ints(s), 0, head, length);
                let values = decode_head(pool, pages.bytes(), table.ints(s), 1, head, length);
                let mut result = vec![0.0; rows * dims.group * q.dim];
                result.par_chunks_mut(q.dim).enumerate().for_each(|(i, out)| {
                    let (row, member) = (i / dims.group, i % dims.group);
                    let start = (head * dims.group + member) * q.stride;
                    let query = &q_view.row(first + row)[start..start + q.dim];
                    let visible = (length - rows + row + 1) * q.dim;
                    attend(query, &keys[..visible], &values[..visible], scale, out);
                });
                result
            })
            .collect();
        for row in 0..rows {
            let target = &mut out_view.row(first + row)[..width];
            let part = dims.group * q.dim;
            for (target, head) in target.chunks_mut(part).zip(&heads) {
                target.copy_from_slice(&head[row * part..(row + 1) * part]);
            }
        }
    }
    Ok(())
}

fn decode_head(
    pool: &KvPool<Cpu>,
    pages: &[u8],
    blocks: &[i32],
    plane: usize,
    head: usize,
    length: usize,
) -> Vec<f32> {
    let (layout, bytes) = (pool.layout, pool.layout.block_bytes());
    let mut out = vec![0.0; length * layout.head_dim];
    for (position, out) in out.chunks_mut(layout.head_dim).enumerate() {
        let block = blocks[position / BLOCK_TOKENS] as usize;
        let page = &pages[block * bytes..(block + 1) * bytes];
        kv_codec::decode(&layout, page, plane, head, position % BLOCK_TOKENS, out);
    }
    out
}

fn attend(query: &[f32], keys: &[f32], values: &[f32], scale: f32, out: &mut [f32]) {
    let dim = query.len();
    let mut scores: Vec<f32> = keys.chunks(dim).map(|key| scale * dot(query, key)).collect();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in &mut scores {
        *score = (*score - largest).exp();
        sum += *score;
    }
    out.fill(0.0);
    for (score, value) in scores.iter().zip(values.chunks(dim)) {
        let weight = score / sum;
        for (out, v) in out.iter_mut().zip(value) {
            *out += weight * v;
        }
    }
}

/// Dot product in sixteen lanes, so that the compiler can use vector registers.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (a_chunks, b_chunks) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for i in 0..16 {
            lanes[i] += a[i] * b[i];
        }
    }
    lanes.iter().sum::<f32>() + rest
}
