//! Q5_0: `d * (q - 16)`, blocks of 32.

use super::block::{Block, Half, bits, joined, pack_fifth_bits, pack_nibbles, scaled, spread_bits};
use super::fit::{Samples, Symmetric, reciprocal, round_within};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: nibbles as in Q4_0, the fifth bit of weight `e` in bit `e` of `qh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5_0 {
    d: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}

impl Block<32> for Q5_0 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (half, values) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let high = [self.qh[2 * half], self.qh[2 * half + 1]];
            let low = bits(&self.qs, 4 * half, 15);
            *values = scaled(d, joined(low, spread_bits(high)), 16);
        }
    }
}

/// Codes for the scale of least squared error; the codes follow from the rounded scale.
pub(super) fn encode(values: &[f32; 32], weights: &[f32; 32]) -> Option<Q5_0> {
    let level = |v| round_within(v, -16.0, 15.0);
    let scale = Symmetric { end: -16.0, step: 0.15, level }.scale(Samples { values, weights });
    let d = Half::from_f32(scale);
    let inverse = reciprocal(d.to_f32());
    let codes = values.map(|v| (level(v * inverse) + 16.0) as u8);
    let (qh, qs) = (pack_fifth_bits(&codes), pack_nibbles(&codes));
    d.is_finite().then_some(Q5_0 { d, qh, qs })
}
