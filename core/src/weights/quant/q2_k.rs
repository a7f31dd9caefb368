//! Q2_K: `d * sc * q - dmin * mn` with 4-bit `sc` and `mn` for each 16 weights, blocks of 256.

use super::block::{Block, Half, affine, bits, boundary};
use super::fit::{Affine, Samples};
use super::super_block::{AffineScales, pack_pairs};
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 16 sub-blocks. A byte of `qs` holds four codes, one of each of four
/// sub-blocks that lie 32 weights apart.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q2K {
    /// `sc` in the low nibble, `mn` in the high one.
    scales: [u8; 16],
    qs: [u8; 64],
    d: Half,
    dmin: Half,
}

impl Block<256> for Q2K {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            boundary();
            let codes = &self.qs.as_chunks::<16>().0[2 * (sub / 8) + sub % 2];
            let shift = 2 * ((sub % 8) / 2);
            let scale = d * f32::from(self.scales[sub] & 15);
            let minimum = dmin * f32::from(self.scales[sub] >> 4);
            *values = affine(scale, bits(codes, shift, 3), -minimum);
        }
    }
}

/// Scales, minimums and codes of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Q2K> {
    let levels = Affine { top: 3.0, offset_below_zero: true };
    let fit = AffineScales::<16>::fit(Samples { values, weights }, levels, 15);
    let scales = std::array::from_fn(|sub| fit.scales[sub] | fit.minimums[sub] << 4);
    let qs = pack_pairs(&fit.codes(values, levels));
    fit.is_finite().then_some(Q2K { scales, qs, d: fit.d, dmin: fit.dmin })
}
