//! Mixture of experts.

use super::{Pair, Random, linear::weight_tensor};
use forge_core::Residence;
use forge_core::backend::Backend;
use forge_core::ops::{MoeCombine, Ops};
use forge_core::weights::quant::StorageType;

/// `moe_route`: ids, order and weights.
pub fn route<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, (rows, experts, k)) in
        [(1, 8, 2), (3, 256, 8), (1, 512, 10), (130, 8, 2), (2, 5, 5)].into_iter().enumerate()
    {
        let random = &mut Random::new(i as u64);
        let logits = pair.random(random, rows, experts, 0, 1.0);
        let mut ids = pair.ints(&[rows, k], &vec![-9; rows * k]);
        let mut weights = pair.output(rows, k, 0);
        pair.run(
            |p| p.moe_route(&logits.cpu, &mut ids.cpu, &mut weights.cpu),
            |p| p.moe_route(&logits.device, &mut ids.device, &mut weights.device),
        );
        pair.compare_ints(&format!("moe_route {rows}x{experts}"), &ids);
        pair.compare(&format!("moe_route {rows}x{experts}"), &weights, 1e-5);
    }
}

/// `moe_linear` with shared and separate inputs, and `moe_combine`.
pub fn experts<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, (rows, k)) in [(1usize, 2usize), (3, 2), (9, 8), (70, 2)].into_iter().enumerate() {
        for storage in [StorageType::Q8_0, StorageType::Q4_K, StorageType::Bf16, StorageType::F32] {
            let random = &mut Random::new(i as u64);
            let parts: Vec<_> =
                (0..2).map(|_| weight_tensor(random, storage, &[12, 40, 256])).collect();
            let on_cpu = pair.cpu.upload(&parts, Residence::Device).unwrap();
            let on_device = device.upload(&parts, Residence::Device).unwrap();
            let mut ids: Vec<i32> = (0..rows * k).map(|_| random.below(12) as i32).collect();
            if rows > 2 {
                ids[(rows - 1) * k..].fill(-1);
            }
            let ids = pair.ints(&[rows, k], &ids);
            for x_rows in [rows, rows * k] {
                let x = pair.random(random, x_rows, 256, 0, 1.0);
                let mut out = pair.output(rows * k, 80, 0);
                pair.run(
                    |p| p.moe_linear(&x.cpu, &on_cpu, &ids.cpu, &mut out.cpu),
                    |p| p.moe_linear(&x.device, &on_device, &ids.device, &mut out.device),
                );
                pair.compare(&format!("moe_linear {storage} {rows}x{k} of {x_rows}"), &out, 1e-3);
            }
        }
        let random = &mut Random::new(100 + i as u64);
        let experts = pair.random(random, rows * k, 96, 0, 1.0);
        let weights = pair.random(random, rows, k, 0, 1.0);
        let (shared, gate) =
            (pair.random(random, rows, 96, 0, 1.0), pair.random(random, rows, 1, 0, 1.0));
        let mut out = pair.output(rows, 96, 0);
        pair.run(
            |p| {
                p.moe_combine(MoeCombine {
                    experts: &experts.cpu,
                    weights: &weights.cpu,
                    shared: &shared.cpu,
                    shared_gate: &gate.cpu,
                    out: &mut out.cpu,
                })
            },
            |p| {
                p.moe_combine(MoeCombine {
                    experts: &experts.device,
                    weights: &weights.device,
                    shared: &shared.device,
                    shared_gate: &gate.device,
                    out: &mut out.device,
                })
            },
        );
        pair.compare(&format!("moe_combine {rows}x{k}"), &out, 1e-5);
    }
}
