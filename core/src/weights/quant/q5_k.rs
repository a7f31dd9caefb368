//! Q5_K: Q4_K with a fifth bit, blocks of 256.

use super::block::Half;
use super::q4_k::scale_and_minimum;
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

#[inline(always)]
pub(super) fn decode(block: &Q5K, out: &mut [f32; 256]) {
    let (d, dmin) = (block.d.to_f32(), block.dmin.to_f32());
    for (sub, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let codes = &block.qs.as_chunks::<32>().0[sub / 2];
        let shift = 4 * (sub % 2);
        let (scale, minimum) = scale_and_minimum(&block.scales, sub);
        let (scale, minimum) = (d * f32::from(scale), dmin * f32::from(minimum));
        for ((value, &q), &high) in values.iter_mut().zip(codes).zip(&block.qh) {
            let code = ((q >> shift) & 15) | (((high >> sub) & 1) << 4);
            *value = scale * f32::from(code) - minimum;
        }
    }
}
