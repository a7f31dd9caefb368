//! Q5_0: `d * (q - 16)`, blocks of 32.

use super::block::{Half, extreme, pack_fifth_bits, pack_nibbles, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights: nibbles as in Q4_0, the fifth bit of weight `e` in bit `e` of `qh`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5_0 {
    d: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}

#[inline(always)]
pub(super) fn decode(block: &Q5_0, out: &mut [f32; 32]) {
    let d = block.d.to_f32();
    let high = u32::from_le_bytes(block.qh);
    for (j, &q) in block.qs.iter().enumerate() {
        let first = u32::from(q & 15) | (((high >> j) & 1) << 4);
        let second = u32::from(q >> 4) | (((high >> (j + 16)) & 1) << 4);
        out[j] = d * (first as i32 - 16) as f32;
        out[j + 16] = d * (second as i32 - 16) as f32;
    }
}

/// The weight of largest magnitude gets code 0, which is -16 scales.
pub(super) fn encode(values: &[f32; 32]) -> Option<Q5_0> {
    let scale = extreme(values) / -16.0;
    let inverse = reciprocal(scale);
    let d = Half::from_f32(scale);
    let codes = values.map(|v| ((v * inverse + 16.5) as u8).min(31));
    let (qh, qs) = (pack_fifth_bits(&codes), pack_nibbles(&codes));
    d.is_finite().then_some(Q5_0 { d, qh, qs })
}
