//! Q4_K: `d * sc * q - dmin * mn` with 6-bit `sc` and `mn` for each 32 weights, blocks of 256.

use super::block::{Block, Half, affine, bits, boundary};
use super::fit::{Affine, Samples};
use super::super_block::{AffineScales, pack_nibbles};
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

/// The inverse of [`scale_and_minimum`].
pub(super) fn pack_scales(scales: &[u8; 8], minimums: &[u8; 8]) -> [u8; 12] {
    std::array::from_fn(|at| match at {
        0..4 => scales[at] | scales[at + 4] >> 4 << 6,
        4..8 => minimums[at - 4] | minimums[at] >> 4 << 6,
        _ => (scales[at - 4] & 15) | (minimums[at - 4] & 15) << 4,
    })
}

/// Scales, minimums and codes of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Q4K> {
    let levels = Affine { top: 15.0, offset_below_zero: true };
    let fit = AffineScales::<8>::fit(Samples { values, weights }, levels, 63);
    let scales = pack_scales(&fit.scales, &fit.minimums);
    let qs = pack_nibbles(&fit.codes(values, levels));
    fit.is_finite().then_some(Q4K { d: fit.d, dmin: fit.dmin, scales, qs })
}
