//! Q4_0: `d * (q - 8)`, blocks of 32.

use super::block::{Block, Half, bits, pack_nibbles, scaled};
use super::fit::{Samples, Symmetric, reciprocal, round_within};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: weight `j` in the low nibble of `qs[j]`, weight `j + 16` in the high one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4_0 {
    d: Half,
    qs: [u8; 16],
}

impl Block<32> for Q4_0 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (half, values) in out.as_chunks_mut().0.iter_mut().enumerate() {
            *values = scaled(d, bits(&self.qs, 4 * half, 15), 8);
        }
    }
}

/// Codes for the scale of least squared error; the codes follow from the rounded scale.
pub(super) fn encode(values: &[f32; 32], weights: &[f32; 32]) -> Option<Q4_0> {
    let level = |v| round_within(v, -8.0, 7.0);
    let scale = Symmetric { end: -8.0, step: 0.15, level }.scale(Samples { values, weights });
    let d = Half::from_f32(scale);
    let inverse = reciprocal(d.to_f32());
    let codes = values.map(|v| (level(v * inverse) + 8.0) as u8);
    d.is_finite().then(|| Q4_0 { d, qs: pack_nibbles(&codes) })
}
