//! `linear` and `linear_silu_mul` for every storage type.

use super::{Pair, Random};
use crate::fixtures;
use forge_core::backend::Backend;
use forge_core::ops::Ops;
use forge_core::weights::host::HostTensor;
use forge_core::weights::mmap::map_file;
use forge_core::weights::quant::StorageType;
use forge_core::weights::safetensors::parse_raw;
use forge_core::{DType, Residence, Shape};
use std::sync::OnceLock;

/// Blocks of real quantisers, by type name.
fn quantised_blocks(storage: StorageType) -> &'static [u8] {
    static BLOCKS: OnceLock<Vec<(StorageType, Vec<u8>)>> = OnceLock::new();
    let all = BLOCKS.get_or_init(|| {
        let path = fixtures::root().join("tests/fixtures/quants/quants.safetensors");
        let raw = parse_raw(&path, map_file(&path).unwrap()).unwrap();
        StorageType::ALL
            .into_iter()
            .filter_map(|t| {
                let key = format!("{}.quantized.raw", t.name());
                let found = raw.iter().find(|(name, _)| name.eq_ignore_ascii_case(&key));
                found.map(|(_, tensor)| (t, tensor.data.as_slice().to_vec()))
            })
            .collect()
    });
    let found = all.iter().find(|(t, _)| *t == storage);
    found.map(|(_, bytes)| &bytes[..]).unwrap_or(&[])
}

/// A weight of this type with sane values: random floats, or random blocks of the quantised
/// fixture.
pub fn weight_tensor(random: &mut Random, storage: StorageType, shape: &[usize]) -> HostTensor {
    let values: usize = shape.iter().product();
    let (block_values, block_bytes) = storage.block();
    let mut bytes = Vec::new();
    if block_values == 1 {
        storage.quantize(&random.normals(values, 0.5), &mut bytes).unwrap();
    } else {
        let blocks = quantised_blocks(storage);
        assert!(!blocks.is_empty(), "no blocks of type {storage}");
        let count = blocks.len() / block_bytes;
        for _ in 0..values / block_values {
            let at = random.below(count) * block_bytes;
            bytes.extend_from_slice(&blocks[at..at + block_bytes]);
        }
    }
    HostTensor::new(format!("{storage}"), storage, shape.to_vec(), bytes.into()).unwrap()
}

/// Tolerance of a product: a GPU may round activations to 16 bits with a scale for each 128 columns.
/// The largest of very few outputs may itself be small by cancellation, so there the same error is a
/// larger share of it.
fn tolerance(outputs: usize) -> f32 {
    if outputs < 32 { 4e-4 } else { 2e-4 }
}

fn check<B: Backend>(
    pair: &Pair<'_, B>,
    seed: u64,
    parts: &[(StorageType, usize)],
    columns: usize,
    rows: usize,
) {
    let random = &mut Random::new(seed);
    let tensors: Vec<HostTensor> =
        parts.iter().map(|(t, out)| weight_tensor(random, *t, &[*out, columns])).collect();
    let on_cpu = pair.cpu.upload(&tensors, Residence::Device).unwrap();
    let on_device = pair.device.upload(&tensors, Residence::Device).unwrap();
    let gap = 4 * (seed as usize % 3);
    let x = pair.random(random, rows, columns, gap, 1.0);
    let mut out = pair.output(rows, on_cpu.rows, seed as usize % 3);
    pair.run(
        |p| p.linear(&x.cpu, &on_cpu, &mut out.cpu),
        |p| p.linear(&x.device, &on_device, &mut out.device),
    );
    pair.compare(
        &format!("linear {parts:?} x {columns}, {rows} rows"),
        &out,
        tolerance(rows * on_cpu.rows),
    );
}

/// Every storage type at 1 to 8 rows and more, odd output counts, one block of columns.
pub fn every_type<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, storage) in StorageType::ALL.into_iter().enumerate() {
        let seed = i as u64;
        for rows in [1, 2, 3, 5, 8] {
            check(&pair, seed + rows as u64, &[(storage, 67)], 768, rows);
        }
        check(&pair, seed, &[(storage, 1)], 256, 1);
        check(&pair, seed, &[(storage, 33)], 2560, 1);
        for rows in [9, 33, 65, 130] {
            check(&pair, seed + rows as u64, &[(storage, 131)], 512, rows);
        }
    }
}

/// Parts of different types side by side, as in GGUF mixes; long and large matrices.
pub fn parts_and_large<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    use StorageType::{Bf16, F32, Q4_K, Q6_K, Q8_0};
    for rows in [1, 4, 40] {
        check(&pair, 1, &[(Q4_K, 96), (Q4_K, 32), (Q6_K, 32)], 1024, rows);
        check(&pair, 2, &[(Q8_0, 200), (Q8_0, 100), (F32, 5), (Bf16, 7)], 256, rows);
    }
    check(&pair, 3, &[(Q8_0, 1024)], 17408, 1);
    check(&pair, 4, &[(Q4_K, 512)], 9216, 3);
    check(&pair, 5, &[(Q8_0, 640)], 2560, 512);
    check(&pair, 6, &[(Q4_K, 300)], 2560, 257);
    // Columns of a tiny model: rows that are a whole number of 32-blocks only.
    check(&pair, 7, &[(Q8_0, 64)], 96, 1);
    check(&pair, 8, &[(Bf16, 64)], 96, 20);
    check(&pair, 9, &[(F32, 2)], 64, 1);
}

/// The fused feed-forward input against its default body on the reference.
pub fn linear_silu_mul<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, rows) in [1usize, 3, 8, 70].into_iter().enumerate() {
        let random = &mut Random::new(i as u64);
        let storage = [StorageType::Q8_0, StorageType::Q4_K, StorageType::Bf16][i % 3];
        let parts: Vec<_> = (0..2).map(|_| weight_tensor(random, storage, &[160, 512])).collect();
        let on_cpu = pair.cpu.upload(&parts, Residence::Device).unwrap();
        let on_device = device.upload(&parts, Residence::Device).unwrap();
        let x = pair.random(random, rows, 512, 0, 0.2);
        let (mut scratch, mut out) = (pair.output(rows, 320, 0), pair.output(rows, 160, 0));
        pair.run(
            |p| p.linear_silu_mul(&x.cpu, &on_cpu, &mut scratch.cpu, &mut out.cpu),
            |p| p.linear_silu_mul(&x.device, &on_device, &mut scratch.device, &mut out.device),
        );
        pair.compare(
            &format!("linear_silu_mul {storage} {rows} rows"),
            &out,
            3.0 * tolerance(160 * rows),
        );
    }
}

/// A row's result is the same bits whatever rows are computed with it, and however many.
///
/// # Panics
/// If one differs.
pub fn rows_do_not_depend_on_their_number<B: Backend>(device: &B) {
    const ROWS: usize = 150;
    let random = &mut Random::new(11);
    let shapes = [(131, 768), (70, 4096), (2200, 2560)];
    for storage in StorageType::ALL {
        for (outputs, columns) in shapes {
            let tensor = weight_tensor(random, storage, &[outputs, columns]);
            let weight = device.upload(&[tensor], Residence::Device).unwrap();
            let x = device.zeros(Shape::new(&[ROWS, columns]), DType::F32).unwrap();
            let values = random.normals(ROWS * columns, 1.0);
            device.write(&x, bytemuck::cast_slice(&values)).unwrap();
            let run = |first: usize, rows: usize| {
                let x = x.row_range(first..first + rows).unwrap();
                let mut out = device.zeros(Shape::new(&[rows, outputs]), DType::F32).unwrap();
                let program = device.record(|pass| pass.linear(&x, &weight, &mut out)).unwrap();
                device.submit(&program).unwrap();
                let mut bits = vec![0u32; rows * outputs];
                device.read(&out, bytemuck::cast_slice_mut(&mut bits)).unwrap();
                bits
            };
            let all = run(0, ROWS);
            for (first, rows) in [(0, 1), (149, 1), (5, 3), (20, 16), (17, 30), (3, 64), (40, 110)]
            {
                let expected = &all[first * outputs..(first + rows) * outputs];
                let same = run(first, rows) == expected;
                assert!(same, "{storage} {outputs} x {columns}: {rows} rows from {first} differ");
            }
        }
    }
}
