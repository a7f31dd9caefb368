//! Ops that treat each row alone.

use super::{Pair, Random, Twin};
use forge_core::backend::Backend;
use forge_core::kv::{KvLayout, KvPool, KvType};
use forge_core::ops::{CopyDirection, CopyPages, Ops, Rope, RopePairing};
use forge_core::tensor::Heads;
use forge_core::{Residence, Tensor};

/// `(rows, columns)` from one value to the largest model.
const SHAPES: [(usize, usize); 9] =
    [(1, 1), (1, 63), (2, 64), (3, 96), (1, 2560), (4, 5120), (1, 17408), (129, 512), (300, 65)];

/// `add`, `rms_norm`, `add_rms_norm`.
pub fn add_and_norm<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, (rows, columns)) in SHAPES.into_iter().enumerate() {
        let random = &mut Random::new(i as u64);
        let what = format!("{rows}x{columns}");
        let x = pair.random(random, rows, columns, i % 3, 2.0);
        let w = pair.floats(&[columns], &random.normals(columns, 1.0));
        let mut out = pair.output(rows, columns, i % 2);
        pair.run(
            |p| p.rms_norm(&x.cpu, &w.cpu, 1e-6, &mut out.cpu),
            |p| p.rms_norm(&x.device, &w.device, 1e-6, &mut out.device),
        );
        pair.compare(&format!("rms_norm {what}"), &out, 1e-5);

        let mut sum = pair.random(random, rows, columns, i % 2, 3.0);
        pair.run(|p| p.add(&x.cpu, &mut sum.cpu), |p| p.add(&x.device, &mut sum.device));
        pair.compare(&format!("add {what}"), &sum, 0.0);

        let mut out = pair.output(rows, columns, 0);
        pair.run(
            |p| p.add_rms_norm(&x.cpu, &mut sum.cpu, &w.cpu, 1e-6, &mut out.cpu),
            |p| p.add_rms_norm(&x.device, &mut sum.device, &w.device, 1e-6, &mut out.device),
        );
        pair.compare(&format!("add_rms_norm {what} sum"), &sum, 0.0);
        pair.compare(&format!("add_rms_norm {what}"), &out, 1e-5);
    }
}

/// `gated_rms_norm`, with the gate in the columns of another tensor.
pub fn gated_norm<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, (rows, heads, dim)) in
        [(1, 1, 16), (1, 48, 128), (3, 32, 128), (5, 8, 64), (130, 6, 16), (2, 4, 32)]
            .into_iter()
            .enumerate()
    {
        let random = &mut Random::new(i as u64);
        let x = pair.random(random, rows, heads * dim, 0, 1.0);
        let gate = pair.random(random, rows, heads * dim, 4 * i, 2.0);
        let w = pair.floats(&[dim], &random.normals(dim, 1.0));
        let mut out = pair.output(rows, heads * dim, i % 2);
        pair.run(
            |p| p.gated_rms_norm(&x.cpu, &gate.cpu, &w.cpu, 1e-6, &mut out.cpu),
            |p| p.gated_rms_norm(&x.device, &gate.device, &w.device, 1e-6, &mut out.device),
        );
        pair.compare(&format!("gated_rms_norm {rows}x{heads}x{dim}"), &out, 2e-5);
    }
}

fn heads<B: Backend>(t: &Tensor<B>, count: usize, stride: usize, dim: usize) -> Heads<B> {
    Heads::strided(t.clone(), count, stride, dim).unwrap()
}

/// `rms_norm_heads`, `rope` in both pairings, `sigmoid_mul`, on interleaved heads.
pub fn heads_and_rope<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let shapes =
        [(1, 24, 256, 64), (1, 16, 256, 64), (2, 8, 64, 16), (5, 6, 16, 16), (70, 4, 32, 8)];
    for (i, (rows, count, dim, rotated)) in shapes.into_iter().enumerate() {
        let random = &mut Random::new(i as u64);
        let stride = if i % 2 == 0 { 2 * dim } else { dim };
        let what = format!("{rows} rows of {count} heads of {dim} at {stride}");
        let x = pair.random(random, rows, count * stride, i, 1.0);
        let w = pair.floats(&[dim], &random.normals(dim, 1.0));
        let (mut on_cpu, mut on_device) =
            (heads(&x.cpu, count, stride, dim), heads(&x.device, count, stride, dim));
        pair.run(
            |p| p.rms_norm_heads(&mut on_cpu, &w.cpu, 1e-6),
            |p| p.rms_norm_heads(&mut on_device, &w.device, 1e-6),
        );
        pair.compare(&format!("rms_norm_heads {what}"), &x, 1e-5);

        let mut positions: Vec<i32> = (0..rows).map(|_| random.below(40_000) as i32).collect();
        positions[0] = 262_143;
        if rows > 2 {
            positions[rows - 1] = -1;
        }
        let positions = pair.ints(&[rows], &positions);
        let table: Vec<f32> =
            (0..rotated / 2).map(|i| 1e7f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
        let table = pair.floats(&[rotated / 2], &table);
        for pairing in [RopePairing::Half, RopePairing::Adjacent] {
            pair.run(
                |p| {
                    p.rope(Rope {
                        positions: &positions.cpu,
                        frequencies: &table.cpu,
                        pairing,
                        x: &mut on_cpu,
                    })
                },
                |p| {
                    p.rope(Rope {
                        positions: &positions.device,
                        frequencies: &table.device,
                        pairing,
                        x: &mut on_device,
                    })
                },
            );
            // The angle is a product of f32 values: at position 262143 its rounding is 1.6e-2.
            pair.compare(&format!("rope {pairing:?} {what}"), &x, 1e-4);
        }

        let mut out = pair.random(random, rows, count * dim, i % 2, 1.0);
        pair.run(
            |p| p.sigmoid_mul(&on_cpu, &mut out.cpu),
            |p| p.sigmoid_mul(&on_device, &mut out.device),
        );
        pair.compare(&format!("sigmoid_mul {what}"), &out, 2e-4);
    }
}

/// `silu_mul`.
pub fn silu<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, (rows, inner)) in
        [(1, 1), (1, 9216), (3, 17408), (2, 96), (130, 768)].into_iter().enumerate()
    {
        let random = &mut Random::new(i as u64);
        let x = pair.random(random, rows, 2 * inner, 2 * (i % 2), 3.0);
        let mut out = pair.output(rows, inner, i % 2);
        pair.run(|p| p.silu_mul(&x.cpu, &mut out.cpu), |p| p.silu_mul(&x.device, &mut out.device));
        pair.compare(&format!("silu_mul {rows}x{inner}"), &out, 1e-5);
    }
}

/// `gather_rows` and `embed` of every storage type.
pub fn look_ups<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let random = &mut Random::new(3);
    let x = pair.random(random, 40, 77, 3, 1.0);
    let indices = pair.ints(&[6], &[39, 0, -1, 7, 7, 12]);
    let mut out = pair.output(6, 77, 1);
    pair.run(
        |p| p.gather_rows(&x.cpu, &indices.cpu, &mut out.cpu),
        |p| p.gather_rows(&x.device, &indices.device, &mut out.device),
    );
    pair.compare("gather_rows", &out, 0.0);

    for storage in forge_core::weights::quant::StorageType::ALL {
        let table = super::linear::weight_tensor(random, storage, &[50, 512]);
        let on_cpu = pair.cpu.upload(std::slice::from_ref(&table), Residence::Lookup).unwrap();
        let on_device = device.upload(&[table], Residence::Lookup).unwrap();
        let ids = pair.ints(&[5], &[49, -1, 0, 17, 49]);
        let mut out = pair.output(5, 512, 2);
        pair.run(
            |p| p.embed(&ids.cpu, &on_cpu, &mut out.cpu),
            |p| p.embed(&ids.device, &on_device, &mut out.device),
        );
        pair.compare(&format!("embed {storage}"), &out, 1e-6);
    }
}

/// `argmax`, ties and NaN included.
pub fn argmax<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, (rows, columns)) in
        [(1, 1), (1, 512), (4, 6144), (2, 248_320), (3, 1000)].into_iter().enumerate()
    {
        let random = &mut Random::new(i as u64);
        let mut values = random.normals(rows * columns, 1.0);
        if columns > 900 {
            values[columns - 1] = 50.0;
            values[columns / 3] = 50.0;
            if rows > 2 {
                values[columns + 17] = f32::NAN;
            }
        }
        let logits = pair.floats(&[rows, columns], &values);
        let mut out = pair.ints(&[rows], &vec![-7; rows]);
        pair.run(
            |p| p.argmax(&logits.cpu, &mut out.cpu),
            |p| p.argmax(&logits.device, &mut out.device),
        );
        pair.compare_ints(&format!("argmax {rows}x{columns}"), &out);
    }
}

/// `copy_state` between slots.
pub fn copy_state<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let random = &mut Random::new(1);
    for dims in [[5, 3, 7, 11], [6, 4, 16, 16]] {
        let len: usize = dims.iter().product();
        let mut state: Twin<B> = pair.floats(&dims, &random.normals(len, 1.0));
        let pairs = pair.ints(&[3, 2], &[0, 3, -1, 0, 2, 1]);
        pair.run(
            |p| p.copy_state(&pairs.cpu, &mut state.cpu),
            |p| p.copy_state(&pairs.device, &mut state.device),
        );
        pair.compare("copy_state", &state, 0.0);
    }
}

/// `copy_pages` there and back: aligned and odd ranges, skipped blocks, a skipped row.
pub fn copy_pages<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let random = &mut Random::new(2);
    let layout = KvLayout { kv_type: KvType::F16, kv_heads: 2, head_dim: 16 };
    let blocks = 7;
    let words = layout.block_bytes() / 4;
    for (row, start, page_start, count) in [
        (1, 0, 0, 4 * words),
        (0, 8, 4, 2 * words + 64),
        (2, 3, words - 1, words + 7),
        (-1, 0, 0, 9),
    ] {
        let mut state: Twin<B> = pair.floats(&[4, 8 * words], &random.normals(32 * words, 1.0));
        let pages = pair.bytes(&[blocks, layout.block_bytes()]);
        let mut pools = (
            KvPool { pages: pages.cpu.clone(), layout },
            KvPool { pages: pages.device.clone(), layout },
        );
        for (line, direction) in [(row, CopyDirection::ToPages), (3, CopyDirection::FromPages)] {
            let table = pair.ints(&[5], &[line, 6, 0, -1, 2]);
            macro_rules! op {
                ($side:ident, $pool:expr) => {
                    CopyPages {
                        state: &mut state.$side,
                        pool: &mut $pool,
                        table: &table.$side,
                        state_start: start,
                        page_start,
                        words: count,
                        direction,
                    }
                };
            }
            pair.run(|p| p.copy_pages(op!(cpu, pools.0)), |p| p.copy_pages(op!(device, pools.1)));
            let what = format!("copy_pages {row} {start} {page_start} {count} {direction:?}");
            let (expected, got) = pair.read_bytes(&pages);
            assert!(expected == got, "{what}: pages");
            assert_eq!(expected.iter().any(|byte| *byte != 0), row >= 0, "{what}");
            pair.compare(&what, &state, 0.0);
        }
    }
}
