//! `causal_conv1d` and `gated_delta_rule` over ragged batches.

use super::{Pair, Ragged, Random, Twin};
use forge_core::backend::Backend;
use forge_core::ops::{CausalConv1d, GatedDeltaRule, HeadMap, Ops};

/// Rows that hold data: what an op writes into padded rows is unspecified.
fn real_rows<B: Backend>(twin: &Twin<B>, ragged: &Ragged) -> Twin<B> {
    let rows = ragged.rows() - ragged.padded_rows;
    let mut real = twin.share();
    real.cpu = real.cpu.first_rows(rows).unwrap();
    real.device = real.device.first_rows(rows).unwrap();
    real
}

fn compare_rows<B: Backend>(
    pair: &Pair<'_, B>,
    what: &str,
    twin: &Twin<B>,
    ragged: &Ragged,
    tolerance: f32,
) {
    let real = real_rows(twin, ragged);
    let len = real.cpu.shape.len();
    let (mut expected, mut got) = (vec![0f32; len], vec![0f32; len]);
    pair.cpu.read(&real.cpu, bytemuck::cast_slice_mut(&mut expected)).unwrap();
    pair.device.read(&real.device, bytemuck::cast_slice_mut(&mut got)).unwrap();
    super::compare(what, &expected, &got, tolerance);
}

/// Convolution and its state.
pub fn conv<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, ragged) in Ragged::table_of_shapes().into_iter().enumerate() {
        for (channels, kernel) in [(192, 4), (8192, 4), (40, 3)] {
            if channels > 1000 && i % 3 != 0 {
                continue;
            }
            let random = &mut Random::new(i as u64);
            let rows = ragged.rows();
            let x = pair.random(random, rows, channels, 8, 1.0);
            let weight = pair.floats(&[channels, kernel], &random.normals(channels * kernel, 0.5));
            let slots = ragged.slots();
            let state = random.normals(slots * (kernel - 1) * channels, 1.0);
            let mut state = pair.floats(&[slots, kernel - 1, channels], &state);
            let sequences = pair.ints(&[ragged.count(), 4], &ragged.table());
            let mut out = pair.output(rows, channels, 0);
            pair.run(
                |p| {
                    p.causal_conv1d(CausalConv1d {
                        x: &x.cpu,
                        weight: &weight.cpu,
                        state: &mut state.cpu,
                        sequences: &sequences.cpu,
                        out: &mut out.cpu,
                    })
                },
                |p| {
                    p.causal_conv1d(CausalConv1d {
                        x: &x.device,
                        weight: &weight.device,
                        state: &mut state.device,
                        sequences: &sequences.device,
                        out: &mut out.device,
                    })
                },
            );
            let what = format!("causal_conv1d {ragged:?} {channels}x{kernel}");
            compare_rows(&pair, &what, &out, &ragged, 1e-5);
            pair.compare(&format!("{what} state"), &state, 0.0);
        }
    }
}

struct DeltaShape {
    key_heads: usize,
    value_heads: usize,
    dim: usize,
    map: HeadMap,
}

fn delta_case<B: Backend>(pair: &Pair<'_, B>, seed: u64, ragged: &Ragged, shape: &DeltaShape) {
    let random = &mut Random::new(seed);
    let (hk, hv, dim) = (shape.key_heads, shape.value_heads, shape.dim);
    let (rows, slots) = (ragged.rows(), ragged.slots());
    let qkv = pair.random(random, rows, (2 * hk + hv) * dim, 0, 1.0);
    let ba = pair.random(random, rows, 2 * hv, 4, 1.5);
    let mut constants: Vec<f32> = random.normals(hv, 0.7).iter().map(|v| -v.exp()).collect();
    constants.extend(random.normals(hv, 0.5));
    let constants = pair.floats(&[2, hv], &constants);
    let state = random.normals(slots * hv * dim * dim, 0.3);
    let mut state = pair.floats(&[slots, hv, dim, dim], &state);
    let sequences = pair.ints(&[ragged.count(), 4], &ragged.table());
    let mut out = pair.output(rows, hv * dim, 0);
    macro_rules! op {
        ($side:ident) => {
            GatedDeltaRule {
                qkv: &qkv.$side,
                ba: &ba.$side,
                head_constants: &constants.$side,
                state: &mut state.$side,
                sequences: &sequences.$side,
                key_heads: hk,
                head_map: shape.map,
                out: &mut out.$side,
            }
        };
    }
    pair.run(|p| p.gated_delta_rule(op!(cpu)), |p| p.gated_delta_rule(op!(device)));
    let what = format!("gated_delta_rule {ragged:?} {hk}/{hv}x{dim} {:?}", shape.map);
    compare_rows(pair, &what, &out, ragged, 2e-4);
    pair.compare(&format!("{what} state"), &state, 2e-4);
}

/// The delta rule for the head counts of all models.
pub fn delta_rule<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let shapes = [
        DeltaShape { key_heads: 2, value_heads: 4, dim: 32, map: HeadMap::Divide },
        DeltaShape { key_heads: 3, value_heads: 6, dim: 16, map: HeadMap::Modulo },
        DeltaShape { key_heads: 4, value_heads: 8, dim: 64, map: HeadMap::Divide },
        DeltaShape { key_heads: 16, value_heads: 16, dim: 128, map: HeadMap::Modulo },
        DeltaShape { key_heads: 16, value_heads: 32, dim: 128, map: HeadMap::Modulo },
        DeltaShape { key_heads: 16, value_heads: 48, dim: 128, map: HeadMap::Divide },
    ];
    for (i, ragged) in Ragged::table_of_shapes().into_iter().enumerate() {
        for (j, shape) in shapes.iter().enumerate() {
            if shape.dim < 128 || (i + j) % 4 == 0 {
                delta_case(&pair, (10 * i + j) as u64, &ragged, shape);
            }
        }
    }
}
