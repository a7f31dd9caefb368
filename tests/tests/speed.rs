//! Time of `linear` on the real shapes: `cargo test -p forge-tests --release --no-default-features
//! --features cuda --test speed -- --ignored --nocapture`. `FORGE_SPEED=q8_0,q4_k,f16` chooses the
//! types. Per shape and row count it prints microseconds, TFLOP/s (2 rows in out) and GB/s of
//! weights; the weights of few rows rotate through more memory than a cache holds.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![cfg(feature = "cuda")]

use forge_core::backend::Backend;
use forge_core::ops::Ops;
use forge_core::weights::quant::StorageType;
use forge_core::{DType, Residence, Shape};
use forge_tests::backends;
use forge_tests::ops::Random;
use forge_tests::ops::linear::weight_tensor;

/// Outputs and inputs of the matrices of a 4B and a 27B model.
const SHAPES: [(usize, usize); 10] = [
    (2 * 9216, 2560),
    (2560, 9216),
    (12352, 2560),
    (2560, 4096),
    (248_320, 2560),
    (2 * 17_408, 5120),
    (5120, 17_408),
    (16_480, 5120),
    (5120, 6144),
    (64, 2560),
];
const ROWS: [usize; 14] = [1, 2, 3, 4, 8, 16, 32, 48, 64, 96, 128, 256, 512, 1024];
/// Weights of one shape together, in bytes.
const WORKING_SET: usize = 200 << 20;

/// Seconds of one product, the best of three replays.
fn seconds<B: Backend>(device: &B, weights: &[forge_core::Weight<B>], rows: usize) -> f64 {
    let (outputs, columns) = (weights[0].rows, weights[0].columns);
    let x = device.zeros(Shape::new(&[rows, columns]), DType::F32).unwrap();
    let values = Random::new(1).normals(rows * columns, 1.0);
    device.write(&x, bytemuck::cast_slice(&values)).unwrap();
    let mut out = device.zeros(Shape::new(&[rows, outputs]), DType::F32).unwrap();
    let repeats = if rows <= 64 { weights.len().max(4) } else { 3 };
    let program = device.record(|pass| {
        pass.mark()?;
        for weight in weights.iter().cycle().take(repeats) {
            pass.linear(&x, weight, &mut out)?;
        }
        pass.mark()
    });
    let program = program.unwrap();
    device.submit(&program).unwrap();
    let times = (0..3).map(|_| device.op_times(&program).unwrap()[0] / repeats as f64);
    times.fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "a measurement"]
fn linear() {
    let Some(device) = backends::cuda() else { return };
    let chosen = std::env::var("FORGE_SPEED").unwrap_or_else(|_| "q8_0,q4_k".into());
    println!("{:?}", device.info());
    for storage in StorageType::ALL.into_iter().filter(|s| chosen.split(',').any(|c| c == s.name()))
    {
        for (outputs, columns) in SHAPES {
            let tensor = weight_tensor(&mut Random::new(2), storage, &[outputs, columns]);
            let bytes = tensor.data.as_slice().len();
            let copies = WORKING_SET.div_ceil(bytes).min(16);
            let upload =
                |_| device.upload(std::slice::from_ref(&tensor), Residence::Device).unwrap();
            let weights: Vec<_> = (0..copies).map(upload).collect();
            for rows in ROWS.into_iter().filter(|rows| rows * outputs <= 64 << 20) {
                let time = seconds(&device, &weights, rows);
                let tflops = 2.0 * (rows * outputs * columns) as f64 / time / 1e12;
                let bandwidth = bytes as f64 / time / 1e9;
                println!(
                    "{:>6} {outputs:>6} x {columns:>5} rows {rows:>4}: {:>8.1} us {tflops:>6.1} TFLOP/s {bandwidth:>6.0} GB/s",
                    storage.name(),
                    time * 1e6
                );
            }
        }
    }
}
