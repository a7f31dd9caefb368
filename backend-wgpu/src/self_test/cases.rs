//! One small case per op, generic over the backend, with strided views, padded rows and sequences
//! of different states.

use forge_core::backend::{Backend, Residence, upload_f32, upload_i32};
use forge_core::error::Result;
use forge_core::kv::{BLOCK_TOKENS, KvLayout, KvPool, KvType};
use forge_core::ops::{
    CausalConv1d, CopyDirection, CopyPages, GatedDeltaRule, HeadMap, MoeCombine, Ops,
    PagedAttention, Rope, RopePairing, StoreKv,
};
use forge_core::tensor::{DType, Heads, Shape, Tensor};
use forge_core::weights::host::HostTensor;
use forge_core::weights::quant::StorageType;
use half::f16;

/// Rows of a pass: three of a new sequence, two of an old one, two of padding.
const ROWS: usize = 7;
/// Rows that belong to a sequence.
const REAL_ROWS: usize = 5;
const SEQUENCES: [i32; 12] = [0, 3, 3, 2, 3, 2, 9, 0, 0, 0, 0, -1];

/// A cheap hash: the same values on every machine.
fn hash(seed: u32, index: usize) -> u32 {
    let mut x = (index as u32).wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// `len` values in -1..1.
fn floats(seed: u32, len: usize) -> Vec<f32> {
    (0..len).map(|i| hash(seed, i) as f32 / 2f32.powi(31) - 1.0).collect()
}

fn tensor<B: Backend>(backend: &B, seed: u32, dims: &[usize]) -> Result<Tensor<B>> {
    let shape = Shape::new(dims);
    upload_f32(backend, &floats(seed, shape.len()), shape)
}

fn ints<B: Backend>(backend: &B, values: &[i32], dims: &[usize]) -> Result<Tensor<B>> {
    upload_i32(backend, values, Shape::new(dims))
}

fn zeros<B: Backend>(backend: &B, dims: &[usize]) -> Result<Tensor<B>> {
    backend.zeros(Shape::new(dims), DType::F32)
}

fn run<B: Backend>(backend: &B, body: impl FnOnce(&mut B::Pass<'_>) -> Result<()>) -> Result<()> {
    let program = backend.record(body)?;
    backend.submit(&program)
}

/// All values of contiguous tensors, integers as floats.
fn values<B: Backend>(backend: &B, tensors: &[&Tensor<B>]) -> Result<Vec<f32>> {
    let mut all = Vec::new();
    for tensor in tensors {
        let mut words = vec![0u32; tensor.shape.len()];
        backend.read(tensor, bytemuck::cast_slice_mut(&mut words))?;
        all.extend(words.iter().map(|word| match tensor.dtype {
            DType::F32 => f32::from_bits(*word),
            _ => *word as i32 as f32,
        }));
    }
    Ok(all)
}

pub(super) fn gather_rows<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[5, 12])?.columns(2..11)?;
    let indices = ints(backend, &[4, -1, 0, 2], &[4])?;
    let mut out = zeros(backend, &[4, 9])?;
    run(backend, |pass| pass.gather_rows(&x, &indices, &mut out))?;
    values(backend, &[&out])
}

pub(super) fn add<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[3, 70])?.columns(3..70)?;
    let mut sum = tensor(backend, 2, &[3, 67])?;
    run(backend, |pass| pass.add(&x, &mut sum))?;
    values(backend, &[&sum])
}

pub(super) fn rms_norm<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[3, 300])?.columns(1..298)?;
    let w = tensor(backend, 2, &[297])?;
    let mut out = zeros(backend, &[3, 297])?;
    run(backend, |pass| pass.rms_norm(&x, &w, 1e-6, &mut out))?;
    values(backend, &[&out])
}

pub(super) fn add_rms_norm<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[3, 300])?;
    let mut sum = tensor(backend, 3, &[3, 300])?;
    let w = tensor(backend, 2, &[300])?;
    let mut out = zeros(backend, &[3, 300])?;
    run(backend, |pass| pass.add_rms_norm(&x, &mut sum, &w, 1e-6, &mut out))?;
    values(backend, &[&sum, &out])
}

pub(super) fn rms_norm_heads<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[3, 200])?;
    let w = tensor(backend, 2, &[40])?;
    let mut heads = Heads::strided(x.columns(20..200)?, 3, 60, 40)?;
    run(backend, |pass| pass.rms_norm_heads(&mut heads, &w, 1e-6))?;
    values(backend, &[&x])
}

pub(super) fn gated_rms_norm<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[3, 96])?;
    let gate = tensor(backend, 4, &[3, 100])?.columns(4..100)?;
    let w = tensor(backend, 2, &[32])?;
    let mut out = zeros(backend, &[3, 96])?;
    run(backend, |pass| pass.gated_rms_norm(&x, &gate, &w, 1e-6, &mut out))?;
    values(backend, &[&out])
}

pub(super) fn rope<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let positions = ints(backend, &[0, 1, 77, 262_143, -1, 1_000_003], &[6])?;
    let frequencies = [1.0, 0.3, 0.01, 1.3e-5, 0.0, 6.5];
    let frequencies = upload_f32(backend, &frequencies, Shape::new(&[6]))?;
    let mut all = Vec::new();
    for pairing in [RopePairing::Half, RopePairing::Adjacent] {
        let x = tensor(backend, 1, &[6, 64])?;
        let mut heads = Heads::strided(x.columns(4..64)?, 3, 20, 16)?;
        run(backend, |pass| {
            pass.rope(Rope {
                positions: &positions,
                frequencies: &frequencies,
                pairing,
                x: &mut heads,
            })
        })?;
        all.extend(values(backend, &[&x])?);
    }
    Ok(all)
}

pub(super) fn sigmoid_mul<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let gate = tensor(backend, 1, &[3, 64])?;
    let gate = Heads::strided(gate.columns(16..64)?, 2, 32, 16)?;
    let mut x = tensor(backend, 2, &[3, 32])?;
    run(backend, |pass| pass.sigmoid_mul(&gate, &mut x))?;
    values(backend, &[&x])
}

pub(super) fn causal_conv1d<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let x = tensor(backend, 1, &[ROWS, 80])?.columns(10..80)?;
    let weight = tensor(backend, 2, &[70, 4])?;
    let mut state = tensor(backend, 3, &[4, 3, 70])?;
    let sequences = ints(backend, &SEQUENCES, &[3, 4])?;
    let mut out = zeros(backend, &[ROWS, 70])?;
    run(backend, |pass| {
        pass.causal_conv1d(CausalConv1d {
            x: &x,
            weight: &weight,
            state: &mut state,
            sequences: &sequences,
            out: &mut out,
        })
    })?;
    values(backend, &[&out.first_rows(REAL_ROWS)?, &state])
}

pub(super) fn gated_delta_rule<B: Backend>(
    backend: &B,
    key_dim: usize,
    value_dim: usize,
) -> Result<Vec<f32>> {
    let (key_heads, value_heads) = (2, 4);
    let columns = 2 * key_heads * key_dim + value_heads * value_dim;
    let mut all = Vec::new();
    for head_map in [HeadMap::Divide, HeadMap::Modulo] {
        let qkv = tensor(backend, 1, &[ROWS, columns + 8])?.columns(8..columns + 8)?;
        let ba = tensor(backend, 2, &[ROWS, 2 * value_heads])?;
        let constants: Vec<f32> = floats(5, 2 * value_heads)
            .into_iter()
            .enumerate()
            .map(|(i, v)| if i < value_heads { -0.5 - v.abs() } else { 4.0 * v })
            .collect();
        let head_constants = upload_f32(backend, &constants, Shape::new(&[2, value_heads]))?;
        let mut state = tensor(backend, 3, &[3, value_heads, key_dim, value_dim])?;
        let sequences = ints(backend, &SEQUENCES, &[3, 4])?;
        let mut out = zeros(backend, &[ROWS, value_heads * value_dim])?;
        run(backend, |pass| {
            pass.gated_delta_rule(GatedDeltaRule {
                qkv: &qkv,
                ba: &ba,
                head_constants: &head_constants,
                state: &mut state,
                sequences: &sequences,
                key_heads,
                head_map,
                out: &mut out,
            })
        })?;
        all.extend(values(backend, &[&out.first_rows(REAL_ROWS)?, &state])?);
    }
    Ok(all)
}

pub(super) fn silu_mul<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let gate_up = tensor(backend, 1, &[3, 90])?.columns(2..90)?;
    let mut out = zeros(backend, &[3, 44])?;
    run(backend, |pass| pass.silu_mul(&gate_up, &mut out))?;
    values(backend, &[&out])
}

pub(super) fn moe_route<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    // Few distinct values, so that ties occur.
    let logits: Vec<f32> = (0..4 * 130).map(|i| (hash(1, i) % 40) as f32 / 8.0).collect();
    let logits = upload_f32(backend, &logits, Shape::new(&[4, 130]))?;
    let mut ids = backend.zeros(Shape::new(&[4, 8]), DType::I32)?;
    let mut weights = zeros(backend, &[4, 8])?;
    run(backend, |pass| pass.moe_route(&logits, &mut ids, &mut weights))?;
    values(backend, &[&ids, &weights])
}

pub(super) fn moe_combine<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let experts = tensor(backend, 1, &[6, 40])?;
    let weights = tensor(backend, 2, &[3, 2])?;
    let shared = tensor(backend, 3, &[3, 40])?;
    let shared_gate = tensor(backend, 4, &[3, 1])?;
    let mut out = zeros(backend, &[3, 40])?;
    run(backend, |pass| {
        pass.moe_combine(MoeCombine {
            experts: &experts,
            weights: &weights,
            shared: &shared,
            shared_gate: &shared_gate,
            out: &mut out,
        })
    })?;
    values(backend, &[&out])
}

pub(super) fn argmax<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let mut logits = floats(1, 5 * 1000);
    logits[1700] = 2.0;
    logits[1900] = 2.0;
    logits[2500] = f32::NAN;
    logits[3000..4000].fill(-3.0);
    logits[4000..5000].iter_mut().for_each(|v| *v = -v.abs() - 1.0);
    let logits = upload_f32(backend, &logits, Shape::new(&[5, 1000]))?;
    let mut out = backend.zeros(Shape::new(&[5]), DType::I32)?;
    run(backend, |pass| pass.argmax(&logits, &mut out))?;
    values(backend, &[&out])
}

pub(super) fn copy_state<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let mut state = tensor(backend, 1, &[5, 2, 30])?;
    let pairs = ints(backend, &[0, 3, -1, 2, 1, 4], &[3, 2])?;
    run(backend, |pass| pass.copy_state(&pairs, &mut state))?;
    values(backend, &[&state])
}

/// Through blocks and back to another row: what both directions moved shows in the state.
pub(super) fn copy_pages<B: Backend>(backend: &B) -> Result<Vec<f32>> {
    let mut state = tensor(backend, 1, &[3, 700])?;
    let layout = KvLayout { kv_type: KvType::F16, kv_heads: 1, head_dim: 16 };
    let mut pool = KvPool::new(backend, layout, 5)?;
    for (row, direction) in [(1, CopyDirection::ToPages), (2, CopyDirection::FromPages)] {
        let table = ints(backend, &[row, 4, 0, -1, 3], &[5])?;
        run(backend, |pass| {
            pass.copy_pages(CopyPages {
                state: &mut state,
                pool: &mut pool,
                table: &table,
                state_start: 5,
                page_start: 101,
                words: 690,
                direction,
            })
        })?;
    }
    values(backend, &[&state])
}

/// Random blocks whose scales are small finite numbers.
pub(super) fn weight(storage: StorageType, seed: u32, shape: &[usize]) -> Result<HostTensor> {
    let (values, bytes) = storage.block();
    let blocks = shape.iter().product::<usize>() / values;
    let mut data: Vec<u8> = (0..blocks * bytes).map(|i| hash(seed, i) as u8).collect();
    let scale = |i: usize| f16::from_f32(0.004 + 0.002 * (hash(seed ^ 7, i) % 8) as f32);
    for (i, block) in data.chunks_mut(bytes).enumerate() {
        let value = hash(seed, i) as f32 / 2f32.powi(31) - 1.0;
        use StorageType as S;
        let places: &[usize] = match storage {
            S::F32 => {
                block.copy_from_slice(&value.to_le_bytes());
                &[]
            }
            S::F16 => {
                block.copy_from_slice(&f16::from_f32(value).to_le_bytes());
                &[]
            }
            S::Bf16 => {
                block.copy_from_slice(&half::bf16::from_f32(value).to_le_bytes());
                &[]
            }
            S::Mxfp4 => {
                block[0] = 120 + (hash(seed, i) % 5) as u8;
                &[]
            }
            S::Q4_1 | S::Q5_1 | S::Q4_K | S::Q5_K => &[0, 2],
            S::Q2_K => &[80, 82],
            S::Q3_K => &[108],
            S::Q6_K => &[208],
            _ => &[0],
        };
        for place in places {
            // Super-blocks multiply their scale with others of up to 127.
            let scale = if values == 256 { scale(i).to_f32() / 16.0 } else { scale(i).to_f32() };
            block[*place..place + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        }
    }
    HostTensor::new(format!("self-test {storage}"), storage, shape.to_vec(), data.into())
}

/// Columns that cover two blocks, and for plain types a row that is no whole number of units.
pub(super) fn columns(storage: StorageType) -> usize {
    match storage.block().0 {
        1 => 70,
        32 => 96,
        values => 2 * values,
    }
}

pub(super) fn embed<B: Backend>(backend: &B, storage: StorageType) -> Result<Vec<f32>> {
    let columns = columns(storage);
    let table = backend.upload(&[weight(storage, 1, &[5, columns])?], Residence::Lookup)?;
    let ids = ints(backend, &[4, -1, 0, 3], &[4])?;
    let mut out = zeros(backend, &[4, columns])?;
    run(backend, |pass| pass.embed(&ids, &table, &mut out))?;
    values(backend, &[&out])
}

/// Two parts of the type and one of another between them, into strided columns.
pub(super) fn linear<B: Backend>(
    backend: &B,
    storage: StorageType,
    rows: usize,
) -> Result<Vec<f32>> {
    let columns = columns(storage);
    let parts = [
        weight(storage, 1, &[5, columns])?,
        weight(storage, 2, &[66, columns])?,
        weight(StorageType::F32, 3, &[3, columns])?,
        weight(storage, 4, &[2, columns])?,
    ];
    let w = backend.upload(&parts, Residence::Device)?;
    let x = tensor(backend, 9, &[rows, columns])?;
    let out = zeros(backend, &[rows, 80])?;
    let mut view = out.columns(2..78)?;
    run(backend, |pass| pass.linear(&x, &w, &mut view))?;
    values(backend, &[&out])
}

pub(super) fn moe_linear<B: Backend>(backend: &B, storage: StorageType) -> Result<Vec<f32>> {
    let columns = columns(storage);
    let parts = [weight(storage, 1, &[4, 5, columns])?, weight(storage, 2, &[4, 3, columns])?];
    let w = backend.upload(&parts, Residence::Device)?;
    let ids = ints(backend, &[3, 0, 1, -1, 2, 0], &[3, 2])?;
    let mut all = Vec::new();
    for rows in [3, 6] {
        let x = tensor(backend, 9, &[rows, columns])?;
        let mut out = zeros(backend, &[6, 8])?;
        run(backend, |pass| pass.moe_linear(&x, &w, &ids, &mut out))?;
        all.extend(values(backend, &[&out])?);
    }
    Ok(all)
}

/// Stores three passes of keys and values through scattered blocks, then attends with the last
/// `rows` positions of a sequence and one row of another.
pub(super) fn paged_attention<B: Backend>(
    backend: &B,
    layout: KvLayout,
    heads_per_kv: usize,
    rows: usize,
) -> Result<Vec<f32>> {
    let (lengths, tables) = ([37, 18], [[5, 1, 3], [0, 4, 2]]);
    let (width, heads) = (layout.kv_heads * layout.head_dim, layout.kv_heads * heads_per_kv);
    let mut pool = KvPool::new(backend, layout, 6)?;
    for (s, length) in lengths.into_iter().enumerate() {
        let k = tensor(backend, 20 + s as u32, &[length + 1, width])?;
        let v = tensor(backend, 30 + s as u32, &[length + 1, width])?;
        let mut kv_rows: Vec<i32> = (0..length)
            .map(|t| (tables[s][t / BLOCK_TOKENS] * BLOCK_TOKENS + t % BLOCK_TOKENS) as i32)
            .collect();
        kv_rows.push(-1);
        let kv_rows = ints(backend, &kv_rows, &[length + 1])?;
        run(backend, |pass| {
            pass.store_kv(StoreKv { k: &k, v: &v, kv_rows: &kv_rows, pool: &mut pool })
        })?;
    }
    let table: Vec<i32> = tables.iter().flatten().map(|b| *b as i32).chain([0; 3]).collect();
    let block_table = ints(backend, &table, &[3, 3])?;
    let count = rows as i32;
    let lines = [0, count, 37, 0, count, 1, 18, 1, 0, 0, 0, -1];
    let sequences = ints(backend, &lines, &[3, 4])?;
    let q = tensor(backend, 40, &[rows + 2, 2 * heads * layout.head_dim])?;
    let q = Heads::strided(q, heads, 2 * layout.head_dim, layout.head_dim)?;
    let mut out = zeros(backend, &[rows + 2, heads * layout.head_dim])?;
    run(backend, |pass| {
        pass.paged_attention(PagedAttention {
            q: &q,
            pool: &pool,
            sequences: &sequences,
            block_table: &block_table,
            scale: 1.0 / (layout.head_dim as f32).sqrt(),
            out: &mut out,
        })
    })?;
    values(backend, &[&out.first_rows(rows + 1)?])
}
