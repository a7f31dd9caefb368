//! F32, F16 and BF16: one value a block.

use super::block::Half;

#[inline(always)]
pub(super) fn decode_f32(block: &[u8; 4], out: &mut [f32; 1]) {
    *out = [f32::from_le_bytes(*block)];
}

#[inline(always)]
pub(super) fn decode_f16(block: &Half, out: &mut [f32; 1]) {
    *out = [block.to_f32()];
}

/// BF16 is the upper half of an f32.
#[inline(always)]
pub(super) fn decode_bf16(block: &[u8; 2], out: &mut [f32; 1]) {
    *out = [f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16)];
}

pub(super) fn encode_f32(values: &[f32; 1]) -> Option<[u8; 4]> {
    Some(values[0].to_le_bytes())
}

/// Rounds to nearest even.
pub(super) fn encode_f16(values: &[f32; 1]) -> Option<Half> {
    let rounded = Half::from_f32(values[0]);
    rounded.is_finite().then_some(rounded)
}

/// Rounds to nearest even.
pub(super) fn encode_bf16(values: &[f32; 1]) -> Option<[u8; 2]> {
    let rounded = half::bf16::from_f32(values[0]);
    rounded.is_finite().then(|| rounded.to_le_bytes())
}
