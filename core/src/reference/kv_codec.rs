//! Encoding and decoding of KV values: the meaning of each [`KvType`].

use crate::kv::{KvLayout, KvType};
use half::{bf16, f16};

/// Writes one head (`head_dim` values) of `plane` at `token` of a block.
pub fn encode(
    layout: &KvLayout,
    block: &mut [u8],
    plane: usize,
    head: usize,
    token: usize,
    values: &[f32],
) {
    let first = layout.value_index(plane, head, token) * layout.value_bytes();
    match layout.kv_type {
        KvType::F32 => copy(&mut block[first..], values.iter().map(|v| v.to_le_bytes())),
        KvType::F16 => {
            copy(&mut block[first..], values.iter().map(|v| f16::from_f32(*v).to_le_bytes()));
        }
        KvType::Bf16 => {
            copy(&mut block[first..], values.iter().map(|v| bf16::from_f32(*v).to_le_bytes()));
        }
        KvType::Fp8 => copy(&mut block[first..], values.iter().map(|v| [fp8_from_f32(*v)])),
        KvType::Q8_0 => {
            let scales = layout.scale_offset(plane, head, token);
            for (g, group) in values.chunks(layout.group()).enumerate() {
                let largest = group.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let scale = f16::from_f32(largest / 127.0);
                let inverse = if scale > f16::ZERO { 1.0 / scale.to_f32() } else { 0.0 };
                let quants = group.iter().map(|v| {
                    let q = (v * inverse).round_ties_even().clamp(-127.0, 127.0);
                    (q as i8).to_le_bytes()
                });
                copy(&mut block[first + g * layout.group()..], quants);
                block[scales + 2 * g..scales + 2 * g + 2].copy_from_slice(&scale.to_le_bytes());
            }
        }
    }
}

fn copy<const N: usize>(target: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
    for (target, value) in target.chunks_exact_mut(N).zip(values) {
        target.copy_from_slice(&value);
    }
}

/// Reads one head into `out` (`head_dim` values).
pub fn decode(
    layout: &KvLayout,
    block: &[u8],
    plane: usize,
    head: usize,
    token: usize,
    out: &mut [f32],
) {
    let first = layout.value_index(plane, head, token) * layout.value_bytes();
    let bytes = &block[first..first + out.len() * layout.value_bytes()];
    match layout.kv_type {
        KvType::F32 => {
            for (out, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            }
        }
        KvType::F16 => {
            for (out, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *out = f16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        KvType::Bf16 => {
            for (out, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                *out = bf16::from_le_bytes([b[0], b[1]]).to_f32();
            }
        }
        KvType::Fp8 => {
            for (out, b) in out.iter_mut().zip(bytes) {
                *out = fp8_to_f32(*b);
            }
        }
        KvType::Q8_0 => {
            let scales = layout.scale_offset(plane, head, token);
            for (g, (out, q)) in
                out.chunks_mut(layout.group()).zip(bytes.chunks(layout.group())).enumerate()
            {
                let at = scales + 2 * g;
                let scale = f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
                for (out, q) in out.iter_mut().zip(q) {
                    *out = scale * f32::from(*q as i8);
                }
            }
        }
    }
}

/// e4m3 (no infinity, largest 448), round to nearest even, saturating; NaN stays NaN.
pub fn fp8_from_f32(value: f32) -> u8 {
    let sign = ((value.to_bits() >> 24) & 0x80) as u8;
    let magnitude = value.abs();
    if magnitude.is_nan() {
        return sign | 0x7f;
    }
    if magnitude >= 448.0 {
        return sign | 0x7e;
    }
    if magnitude < 2f32.powi(-6) {
        // Subnormal: steps of 2^-9.
        return sign | (magnitude * 512.0).round_ties_even() as u8;
    }
    let bits = magnitude.to_bits();
    let rounded = bits + 0x7_ffff + ((bits >> 20) & 1);
    let exponent = (rounded >> 23) - 120;
    let code = (exponent << 3) | ((rounded >> 20) & 7);
    sign | code.min(0x7e) as u8
}

/// Value of an e4m3 code.
pub fn fp8_to_f32(code: u8) -> f32 {
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = ((code >> 3) & 15, code & 7);
    match (exponent, mantissa) {
        (15, 7) => f32::NAN,
        (0, m) => sign * f32::from(m) / 512.0,
        (e, m) => sign * (1.0 + f32::from(m) / 8.0) * 2f32.powi(i32::from(e) - 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fp8_rounds_to_the_nearest_code() {
        for code in (0..=0x7e).chain(0x80..=0xfe) {
            let value = fp8_to_f32(code);
            let back = fp8_from_f32(value);
            assert!(back == code || value == 0.0, "{code} {value} {back}");
        }
        for i in 0..4000 {
            let value = i as f32 * 0.11;
            let nearest = (0..=0x7eu8).map(fp8_to_f32).fold(f32::MAX, |best, v| {
                if (v - value).abs() < (best - value).abs() { v } else { best }
            });
            assert!((fp8_to_f32(fp8_from_f32(value)) - value).abs() <= (nearest - value).abs());
        }
    }

    #[test]
    fn every_type_round_trips_within_its_step() {
        for kv_type in [KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8] {
            let layout = KvLayout { kv_type, kv_heads: 2, head_dim: 64 };
            let mut block = vec![0u8; layout.block_bytes()];
            let values: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
            encode(&layout, &mut block, 1, 1, 15, &values);
            let mut back = vec![0.0; 64];
            decode(&layout, &block, 1, 1, 15, &mut back);
            let step = match kv_type {
                KvType::F32 => 0.0,
                KvType::F16 => 2e-3,
                KvType::Bf16 => 1.2e-2,
                KvType::Q8_0 => 1.3e-2,
                KvType::Fp8 => 0.13,
            };
            for (a, b) in values.iter().zip(&back) {
                assert!((a - b).abs() <= step, "{kv_type:?}: {a} {b}");
            }
        }
    }
}
