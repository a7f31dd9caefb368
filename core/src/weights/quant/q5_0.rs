//! Q5_0: `d * (q - 16)`, blocks of 32.

use super::block::{
    Block, Half, bits, extreme, joined, pack_fifth_bits, pack_nibbles, reciprocal, scaled,
    spread_bits,
};
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
        let high = u32::from_le_bytes(self.qh);
        for (half, values) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let low = bits(&self.qs, 4 * half, 15);
            *values = scaled(d, joined(low, spread_bits(high >> (16 * half))), 16);
        }
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
