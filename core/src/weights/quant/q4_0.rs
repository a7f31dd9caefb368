//! Q4_0: `d * (q - 8)`, blocks of 32.

use super::block::{Half, extreme, pack_nibbles, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: weight `j` in the low nibble of `qs[j]`, weight `j + 16` in the high one.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4_0 {
    d: Half,
    qs: [u8; 16],
}

#[inline(always)]
pub(super) fn decode(block: &Q4_0, out: &mut [f32; 32]) {
    let d = block.d.to_f32();
    for (j, &q) in block.qs.iter().enumerate() {
        out[j] = d * (i32::from(q & 15) - 8) as f32;
        out[j + 16] = d * (i32::from(q >> 4) - 8) as f32;
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
