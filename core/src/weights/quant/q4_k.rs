//! Q4_K: `d * sc * q - dmin * mn` with 6-bit `sc` and `mn` for each 32 weights, blocks of 256.

use super::block::{Block, Half, affine, bits, boundary};
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 8 sub-blocks. Each 32 bytes of `qs` hold two of them, the first in the
/// low nibbles.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q4K {
    d: Half,
    dmin: Half,
    scales: [u8; 12],
    qs: [u8; 128],
}

impl Block<256> for Q4K {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (sub, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            boundary();
            let codes = self.qs.as_chunks::<32>().0[sub / 2].as_chunks::<16>().0;
            let shift = 4 * (sub % 2);
            let (scale, minimum) = scale_and_minimum(&self.scales, sub);
            let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
            for (values, codes) in values.as_chunks_mut().0.iter_mut().zip(codes) {
                *values = affine(scale, bits(codes, shift, 15), -minimum);
            }
        }
    }
}

/// The 6-bit `sc` and `mn` of sub-block `sub` (0 to 7), as Q4_K and Q5_K pack them: the first four
/// pairs lie in the low 6 bits of 8 bytes, the rest in 4 bytes of nibbles and the bits left over.
#[inline(always)]
pub(super) fn scale_and_minimum(scales: &[u8; 12], sub: usize) -> (u8, u8) {
    if sub < 4 {
        (scales[sub] & 63, scales[sub + 4] & 63)
    } else {
        let nibbles = scales[sub + 4];
        ((nibbles & 15) | (scales[sub - 4] >> 6 << 4), (nibbles >> 4) | (scales[sub] >> 6 << 4))
    }
}
