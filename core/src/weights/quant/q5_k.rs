//! Q5_K: Q4_K with a fifth bit, blocks of 256.

use super::block::{Block, Half, affine, bits, boundary, joined};
use super::fit::{Affine, Samples};
use super::q4_k::{pack_scales, scale_and_minimum};
use super::super_block::{AffineScales, pack_bits, pack_nibbles};
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 8 sub-blocks. Scales and nibbles as in Q4_K; bit `j` of `qh[l]` is the
/// fifth bit of weight `l` of sub-block `j`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q5K {
    d: Half,
    dmin: Half,
    scales: [u8; 12],
    qh: [u8; 32],
    qs: [u8; 128],
}

impl Block<256> for Q5K {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        for (sub, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            boundary();
            let codes = self.qs.as_chunks::<32>().0[sub / 2].as_chunks::<16>().0;
            let shift = 4 * (sub % 2);
            let (scale, minimum) = scale_and_minimum(&self.scales, sub);
            let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
            let highs = self.qh.as_chunks::<16>().0;
            for (half, values) in values.as_chunks_mut().0.iter_mut().enumerate() {
                let (low, high) = (bits(&codes[half], shift, 15), bits(&highs[half], sub, 1));
                *values = affine(scale, joined(low, high), -minimum);
            }
        }
    }
}

/// Scales, minimums and codes of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Q5K> {
    let levels = Affine { top: 31.0, offset_below_zero: true };
    let fit = AffineScales::<8>::fit(Samples { values, weights }, levels, 63);
    let scales = pack_scales(&fit.scales, &fit.minimums);
    let codes = fit.codes(values, levels);
    let (qh, qs) = (pack_bits(&codes, 4), pack_nibbles(&codes));
    fit.is_finite().then_some(Q5K { d: fit.d, dmin: fit.dmin, scales, qh, qs })
}
