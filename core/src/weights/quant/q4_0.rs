//! Q4_0: `d * (q - 8)`, blocks of 32.

use super::block::{Block, Half, bits, extreme, pack_nibbles, reciprocal, scaled};
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

/// The weight of largest magnitude gets code 0, which is -8 scales.
pub(super) fn encode(values: &[f32; 32]) -> Option<Q4_0> {
    let scale = extreme(values) / -8.0;
    let inverse = reciprocal(scale);
    let d = Half::from_f32(scale);
    let codes = values.map(|v| ((v * inverse + 8.5) as u8).min(15));
    d.is_finite().then(|| Q4_0 { d, qs: pack_nibbles(&codes) })
}
