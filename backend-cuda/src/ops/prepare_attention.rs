//! Head norms, rotation and the store into the pool in one launch.

use super::{contiguous, rope, stride, warps};
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::kv::KvType;
use forge_core::ops::{PrepareAttention, Rope, StoreKv};
use forge_core::{Result, check};

const OP: &str = "prepare_attention";
/// Warps of a block, each with one head in shared memory.
const WARPS: usize = 4;

const fn kernel(kv_type: KvType) -> Kernel {
    let entry = match kv_type {
        KvType::F32 => "prepare_attention_f32",
        KvType::F16 => "prepare_attention_f16",
        KvType::Bf16 => "prepare_attention_bf16",
        KvType::Q8_0 => "prepare_attention_q8_0",
        KvType::Fp8 => "prepare_attention_fp8",
    };
    Kernel::new("prepare_attention", entry)
}

/// What the default body would check; returns rows and pairs.
fn checked(op: &mut PrepareAttention<'_, Cuda>) -> Result<(usize, usize)> {
    let rows = check::prepare_attention(op)?;
    op.pool.layout.check()?;
    if let Some((q_norm, k_norm)) = op.norms {
        check::rms_norm_heads(op.q, q_norm)?;
        check::rms_norm_heads(op.k, k_norm)?;
        contiguous(OP, "q_norm", q_norm)?;
        contiguous(OP, "k_norm", k_norm)?;
    }
    let (positions, frequencies, pairing) = (op.positions, op.frequencies, op.pairing);
    contiguous(OP, "frequencies", frequencies)?;
    check::rope(&Rope { positions, frequencies, pairing, x: op.k })?;
    let pairs = check::rope(&Rope { positions, frequencies, pairing, x: op.q })?;
    let k = op.k.tensor.clone();
    check::store_kv(&StoreKv { k: &k, v: op.v, kv_rows: op.kv_rows, pool: op.pool })?;
    let layout = op.pool.layout;
    if op.q.dim != layout.head_dim {
        return Err(forge_core::tensor::shape_error(OP, "q", layout.head_dim, op.q.dim));
    }
    Ok((rows, pairs))
}

pub(super) fn prepare_attention(
    pass: &mut Pass<'_>,
    mut op: PrepareAttention<'_, Cuda>,
) -> Result<()> {
    let (rows, pairs) = checked(&mut op)?;
    let (layout, pages) = (op.pool.layout, &op.pool.pages);
    let tasks = index32(OP, "heads", rows * (op.q.heads + 2 * layout.kv_heads))?;
    let shared = index32(OP, "head_dim", WARPS * layout.head_dim * 4)?;
    let (q_norm, k_norm) = match op.norms {
        Some((q, k)) => (q.into(), k.into()),
        None => (Arg::Null, Arg::Null),
    };
    pass.launch(
        warps(Launch::new(OP, kernel(layout.kv_type)), tasks).shared(shared),
        &[
            (&op.q.tensor).into(),
            stride(&op.q.tensor),
            (op.q.stride as u64).into(),
            index32(OP, "query heads", op.q.heads)?.into(),
            (&op.k.tensor).into(),
            stride(&op.k.tensor),
            (op.k.stride as u64).into(),
            op.v.into(),
            stride(op.v),
            q_norm,
            k_norm,
            op.eps.into(),
            op.positions.into(),
            stride(op.positions),
            op.frequencies.into(),
            index32(OP, "pairs", pairs)?.into(),
            rope::adjacent(op.pairing).into(),
            op.kv_rows.into(),
            stride(op.kv_rows),
            pages.into(),
            stride(pages),
            index32(OP, "kv_heads", layout.kv_heads)?.into(),
            index32(OP, "head_dim", layout.head_dim)?.into(),
            index32(OP, "blocks", pages.rows())?.into(),
            tasks.into(),
        ],
    )
}
