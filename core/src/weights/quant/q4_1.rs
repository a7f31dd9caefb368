//! Q4_1: `d * q + m`, blocks of 32.

use super::block::{Block, Half, affine, bits, pack_nibbles};
use super::fit::{Affine, Samples, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: weight `j` in the low nibble of `qs[j]`, weight `j + 16` in the high one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4_1 {
    d: Half,
    m: Half,
    qs: [u8; 16],
}

impl Block<32> for Q4_1 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        let (d, m) = (self.d.to_f32(), self.m.to_f32());
        for (half, values) in out.as_chunks_mut().0.iter_mut().enumerate() {
            *values = affine(d, bits(&self.qs, 4 * half, 15), m);
        }
    }
}

/// Codes for the scale and offset of least squared error, which are rounded before the codes.
pub(super) fn encode(values: &[f32; 32], weights: &[f32; 32]) -> Option<Q4_1> {
    let levels = Affine { top: 15.0, offset_below_zero: false };
    let (scale, offset) = levels.fit(Samples { values, weights });
    let (d, m) = (Half::from_f32(scale), Half::from_f32(offset));
    let inverse = reciprocal(d.to_f32());
    let codes = values.map(|v| levels.code(v, inverse, m.to_f32()) as u8);
    (d.is_finite() && m.is_finite()).then(|| Q4_1 { d, m, qs: pack_nibbles(&codes) })
}
