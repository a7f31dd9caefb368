//! F32, F16 and BF16: one value a block.

use super::block::{Block, Half};
use bytemuck::{Pod, Zeroable};

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct F32([u8; 4]);

impl Block<1> for F32 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 1]) {
        *out = [f32::from_le_bytes(self.0)];
    }
}

impl Block<1> for Half {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 1]) {
        *out = [self.to_f32()];
    }
}

/// The upper half of an f32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Bf16([u8; 2]);

impl Block<1> for Bf16 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 1]) {
        *out = [f32::from_bits(u32::from(u16::from_le_bytes(self.0)) << 16)];
    }
}

pub(super) fn encode_f32(values: &[f32; 1], _weights: &[f32; 1]) -> Option<F32> {
    Some(F32(values[0].to_le_bytes()))
}

/// Rounds to nearest even.
pub(super) fn encode_f16(values: &[f32; 1], _weights: &[f32; 1]) -> Option<Half> {
    let rounded = Half::from_f32(values[0]);
    rounded.is_finite().then_some(rounded)
}

/// Rounds to nearest even.
pub(super) fn encode_bf16(values: &[f32; 1], _weights: &[f32; 1]) -> Option<Bf16> {
    let rounded = half::bf16::from_f32(values[0]);
    rounded.is_finite().then(|| Bf16(rounded.to_le_bytes()))
}
