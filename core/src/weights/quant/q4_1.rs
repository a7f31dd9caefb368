//! Q4_1: `d * q + m`, blocks of 32.

use super::block::{Half, pack_nibbles, range, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: weight `j` in the low nibble of `qs[j]`, weight `j + 16` in the high one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4_1 {
    d: Half,
    m: Half,
    qs: [u8; 16],
}

#[inline(always)]
pub(super) fn decode(block: &Q4_1, out: &mut [f32; 32]) {
    let (d, m) = (block.d.to_f32(), block.m.to_f32());
    for (j, &q) in block.qs.iter().enumerate() {
        out[j] = d * f32::from(q & 15) + m;
        out[j + 16] = d * f32::from(q >> 4) + m;
    }
}

/// Spreads the 16 codes evenly from the smallest to the largest weight.
pub(super) fn encode(values: &[f32; 32]) -> Option<Q4_1> {
    let (low, high) = range(values);
    let scale = (high - low) / 15.0;
    let inverse = reciprocal(scale);
    let (d, m) = (Half::from_f32(scale), Half::from_f32(low));
    let codes = values.map(|v| (((v - low) * inverse + 0.5) as u8).min(15));
    (d.is_finite() && m.is_finite()).then(|| Q4_1 { d, m, qs: pack_nibbles(&codes) })
}
