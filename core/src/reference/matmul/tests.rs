//! Against dot products in f64 over the dequantised weights.

use super::*;
use std::time::Instant;

/// A fixed pseudo-random sequence (xorshift64*), uniform in [-1, 1).
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
    /// Random blocks whose scales are small finite numbers.
    fn blocks(&mut self, storage: StorageType, values: usize) -> Vec<u8> {
        let mut blocks = Vec::new();
        if storage.quantize(&self.values(values), &mut blocks).is_ok() {
            return blocks;
        }
        let (block_values, block_bytes) = storage.block();
        for _ in 0..values / block_values {
            let mut block: Vec<u8> = (0..block_bytes).map(|_| self.bits() as u8).collect();
            for at in scales_of(storage) {
                block[*at..at + 2].copy_from_slice(&half::f16::from_f32(0.01).to_le_bytes());
            }
            if storage == StorageType::Mxfp4 {
                block[0] = 124;
            }
            blocks.extend(block);
        }
        blocks
    }
}

fn scales_of(storage: StorageType) -> &'static [usize] {
    match storage {
        StorageType::Q2_K => &[80, 82],
        StorageType::Q3_K => &[108],
        StorageType::Q6_K => &[208],
        StorageType::Q4_K | StorageType::Q5_K => &[0, 2],
        StorageType::Mxfp4 => &[],
        _ => &[0],
    }
}

/// The result as defined, and the sum of magnitudes that rounding errors scale with.
fn expected(op: &Matmul<'_>) -> Vec<(f64, f64)> {
    let mut weights = vec![0.0; op.out_rows * op.columns];
    op.storage.dequantize(op.weights, &mut weights).unwrap();
    let mut results = Vec::new();
    for r in 0..op.rows {
        for weights in weights.chunks(op.columns) {
            let x = &op.x[r * op.x_stride..][..op.columns];
            let products = weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
            results.push((products.clone().sum(), products.map(f64::abs).sum()));
        }
    }
    results
}

fn check(storage: StorageType, out_rows: usize, columns: usize, rows: usize) {
    let mut noise = Noise(out_rows as u64 * 31 + columns as u64 * 7 + rows as u64 + 1);
    let weights = noise.blocks(storage, out_rows * columns);
    let (x_stride, out_stride) = (columns + 3, out_rows + 5);
    let x = noise.values(rows * x_stride);
    let op = Matmul { storage, weights: &weights, out_rows, columns, x: &x, x_stride, rows };
    let mut out = vec![f32::NAN; rows * out_stride];
    op.run(&mut out, out_stride).unwrap();
    for (r, expected) in expected(&op).chunks(out_rows).enumerate() {
        let row = &out[r * out_stride..][..out_stride];
        for (o, (got, (want, magnitude))) in row.iter().zip(expected).enumerate() {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= 1e-6 * magnitude, "{storage} {r} {o}: {got} against {want}");
        }
        assert!(row[out_rows..].iter().all(|value| value.is_nan()), "{storage}: wrote too far");
        let single = Matmul { x: &x[r * x_stride..], rows: 1, ..op };
        let mut alone = vec![0.0; out_rows];
        single.run(&mut alone, 0).unwrap();
        let same = alone.iter().zip(row).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{storage}: row {r} of {rows} has other bits than alone");
    }
}

#[test]
fn every_type_matches_its_definition() {
    for storage in StorageType::ALL {
        let block = storage.block().0.max(32);
        check(storage, 5, block, 1);
        check(storage, 7, 3 * block, 6);
        check(storage, 1, block, 9);
    }
}

#[test]
fn ragged_shapes_match() {
    use StorageType::{Bf16, F32, Q4_1};
    for columns in [1, 15, 16, 17, 100] {
        check(F32, 3, columns, 5);
        check(Bf16, 9, columns, 2);
    }
    check(Q4_1, 33, 64, 130);
    check(Q4_1, 1031, 96, 1);
    check(F32, 517, 160, 67);
}

#[test]
fn instruction_sets_agree_within_rounding_and_tasks_do_not_matter() {
    let mut noise = Noise(5);
    let weights = noise.blocks(StorageType::Q5_K, 301 * 512);
    let x = noise.values(512 * 3);
    let op = Matmul {
        storage: StorageType::Q5_K,
        weights: &weights,
        out_rows: 301,
        columns: 512,
        x: &x,
        x_stride: 512,
        rows: 3,
    };
    let best = Instructions::detect();
    let mut whole = vec![0.0; 301 * 3];
    op.run(&mut whole, 301).unwrap();
    for task_rows in [4, 20, 300] {
        let mut out = vec![0.0; 301 * 3];
        op.run_tasks(best, task_rows, &mut out);
        for (task, values) in out.chunks(task_rows * 3).enumerate() {
            let count = values.len() / 3;
            for (i, value) in values.iter().enumerate() {
                let index = (i / count) * 301 + task * task_rows + i % count;
                assert_eq!(value.to_bits(), whole[index].to_bits());
            }
        }
    }
    let mut sets = vec![Instructions::Baseline];
    #[cfg(target_arch = "x86_64")]
    if best != Instructions::Baseline {
        sets.push(Instructions::Avx2);
    }
    for instructions in sets {
        let mut out = vec![0.0; 301 * 3];
        instructions.run(&op, 0, &mut out, &mut Vec::new());
        for ((got, want), (_, magnitude)) in out.iter().zip(&whole).zip(expected(&op)) {
            assert!(f64::from((got - want).abs()) <= 1e-6 * magnitude, "{instructions:?}");
        }
    }
}

#[test]
fn wrong_lengths_are_errors() {
    let (weights, x) = (vec![0; 4 * 8 * 2], vec![0.0; 24]);
    let op = Matmul {
        storage: StorageType::F32,
        weights: &weights,
        out_rows: 2,
        columns: 8,
        x: &x,
        x_stride: 8,
        rows: 3,
    };
    assert!(op.run(&mut [0.0; 6], 2).is_ok());
    assert!(op.run(&mut [0.0; 5], 2).is_err());
    assert!(op.run(&mut [0.0; 6], 1).is_err());
    assert!(Matmul { rows: 4, ..op }.run(&mut [0.0; 8], 2).is_err());
    assert!(Matmul { columns: 7, ..op }.run(&mut [0.0; 8], 2).is_err());
    assert!(Matmul { storage: StorageType::Q8_0, ..op }.run(&mut [0.0; 8], 2).is_err());
    assert!(Matmul { rows: 0, ..op }.run(&mut [], 2).is_ok());
}

#[test]
#[ignore = "prints throughput, checks nothing"]
fn throughput() {
    let mut noise = Noise(9);
    let shapes =
        [(2048usize, 2048usize, 1usize), (576, 1536, 1), (2048, 2048, 4), (2048, 2048, 128)];
    println!("{:?}, {} threads", Instructions::detect(), rayon::current_num_threads());
    for storage in StorageType::ALL {
        for (out_rows, columns, rows) in shapes {
            if !columns.is_multiple_of(storage.block().0) {
                continue;
            }
            let weights = noise.blocks(storage, out_rows * columns);
            let x = noise.values(rows * columns);
            let weights = &weights;
            let op = Matmul { storage, weights, out_rows, columns, x: &x, x_stride: columns, rows };
            let mut out = vec![0.0; rows * out_rows];
            let mut best = f64::INFINITY;
            let start = Instant::now();
            while start.elapsed().as_millis() < 150 {
                let start = Instant::now();
                op.run(&mut out, out_rows).unwrap();
                best = best.min(start.elapsed().as_secs_f64());
            }
            let flops = 2.0 * (out_rows * columns * rows) as f64;
            println!(
                "{storage:8} [{out_rows}, {columns}] x {rows:3}: {:6.1} GFLOP/s {:6.2} GB/s",
                flops / best / 1e9,
                weights.len() as f64 / best / 1e9
            );
        }
    }
}
