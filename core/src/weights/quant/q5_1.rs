//! Q5_1: `d * q + m`, blocks of 32.

use super::block::{Block, Half, affine, bits, joined, pack_fifth_bits, pack_nibbles, spread_bits};
use super::fit::{Affine, Samples, reciprocal};
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
        for (half, values) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let high = [self.qh[2 * half], self.qh[2 * half + 1]];
            let low = bits(&self.qs, 4 * half, 15);
            *values = affine(d, joined(low, spread_bits(high)), m);
        }
    }
}

/// Codes for the scale and offset of least squared error, which are rounded before the codes.
pub(super) fn encode(values: &[f32; 32], weights: &[f32; 32]) -> Option<Q5_1> {
    let levels = Affine { top: 31.0, offset_below_zero: false };
    let (scale, offset) = levels.fit(Samples { values, weights });
    let (d, m) = (Half::from_f32(scale), Half::from_f32(offset));
    let inverse = reciprocal(d.to_f32());
    let codes = values.map(|v| levels.code(v, inverse, m.to_f32()) as u8);
    let (qh, qs) = (pack_fifth_bits(&codes), pack_nibbles(&codes));
    (d.is_finite() && m.is_finite()).then_some(Q5_1 { d, m, qh, qs })
}
