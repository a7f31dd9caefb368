//! Floating-point types: rows of f16 in the order of the tensor cores' A operand.

use super::record::{u16_at, u32_at};
use super::row_scale;
use forge_core::weights::quant::StorageType;
use half::f16;

/// Packs row `slot` of 16; returns the power of two by which the packed values were divided.
pub(super) fn pack(storage: StorageType, bytes: &[u8], slot: usize, out: &mut [u8]) -> f32 {
    match storage {
        StorageType::F16 => {
            for column in 0..bytes.len() / 2 {
                put(out, 512, slot, column, u16_at(bytes, 2 * column));
            }
            1.0
        }
        StorageType::Bf16 => {
            let value = |c: usize| f32::from_bits(u32::from(u16_at(bytes, 2 * c)) << 16);
            let scale = largest_scale(bytes.len() / 2, &value);
            for column in 0..bytes.len() / 2 {
                put(out, 512, slot, column, f16::from_f32(value(column) / scale).to_bits());
            }
            scale
        }
        _ => {
            let value = |c: usize| f32::from_bits(u32_at(bytes, 4 * c));
            let scale = largest_scale(bytes.len() / 4, &value);
            for column in 0..bytes.len() / 4 {
                let exact = value(column) / scale;
                let high = f16::from_f32(exact);
                let low = f16::from_f32(exact - high.to_f32());
                put(out, 1024, slot, column, high.to_bits());
                put(&mut out[512..], 1024, slot, column, low.to_bits());
            }
            scale
        }
    }
}

fn largest_scale(columns: usize, value: &impl Fn(usize) -> f32) -> f32 {
    row_scale((0..columns).map(|c| value(c).abs()).fold(0.0, f32::max))
}

/// Writes the value of a column; `step` bytes lie between two groups of 16 columns.
fn put(out: &mut [u8], step: usize, slot: usize, column: usize, bits: u16) {
    let (g, r, t, j) = (slot % 8, slot / 8, column % 16 / 4, column % 4);
    let start = column / 16 * step + (4 * g + t) * 16 + (j / 2 * 2 + r) * 4 + j % 2 * 2;
    out[start..start + 2].copy_from_slice(&bits.to_le_bytes());
}
