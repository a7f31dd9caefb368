//! Q5_1: `d * q + m`, blocks of 32.

use super::block::{Half, pack_fifth_bits, pack_nibbles, range, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: nibbles as in Q4_1, the fifth bit of weight `e` in bit `e` of `qh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5_1 {
    d: Half,
    m: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}

#[inline(always)]
pub(super) fn decode(block: &Q5_1, out: &mut [f32; 32]) {
    let (d, m) = (block.d.to_f32(), block.m.to_f32());
    let high = u32::from_le_bytes(block.qh);
    for (j, &q) in block.qs.iter().enumerate() {
        let first = u32::from(q & 15) | (((high >> j) & 1) << 4);
        let second = u32::from(q >> 4) | (((high >> (j + 16)) & 1) << 4);
        out[j] = d * first as i32 as f32 + m;
        out[j + 16] = d * second as i32 as f32 + m;
    }
}

/// Spreads the 32 codes evenly from the smallest to the largest weight.
pub(super) fn encode(values: &[f32; 32]) -> Option<Q5_1> {
    let (low, high) = range(values);
    let scale = (high - low) / 31.0;
    let inverse = reciprocal(scale);
    let (d, m) = (Half::from_f32(scale), Half::from_f32(low));
    let codes = values.map(|v| (((v - low) * inverse + 0.5) as u8).min(31));
    let (qh, qs) = (pack_fifth_bits(&codes), pack_nibbles(&codes));
    (d.is_finite() && m.is_finite()).then_some(Q5_1 { d, m, qh, qs })
}
