//! Q5_1: `d * q + m`, blocks of 32.

use super::block::{
    Block, Half, affine, bits, joined, pack_fifth_bits, pack_nibbles, range, reciprocal,
    spread_bits,
};
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

impl Block<32> for Q5_1 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        let high = u32::from_le_bytes(self.qh);
        for (half, values) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let low = bits(&self.qs, 4 * half, 15);
            *values = affine(d, joined(low, spread_bits(high >> (16 * half))), m);
        }
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
