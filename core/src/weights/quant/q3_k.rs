//! Q3_K: `d * sc * q` with a signed 6-bit `sc` for each 16 weights, blocks of 256.

use super::block::Half;
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 16 sub-blocks. Low code bits as in Q2_K.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q3K {
    /// Bit `p` of byte `l` is the inverted sign of weight `32 p + l`.
    hmask: [u8; 32],
    qs: [u8; 64],
    /// Low nibbles of the 16 scales in 8 bytes, then their upper 2 bits in 4 bytes.
    scales: [u8; 12],
    d: Half,
}

#[inline(always)]
pub(super) fn decode(block: &Q3K, out: &mut [f32; 256]) {
    let d = block.d.to_f32();
    for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let codes = &block.qs.as_chunks::<16>().0[2 * (sub / 8) + sub % 2];
        let masks = &block.hmask.as_chunks::<16>().0[sub % 2];
        let shift = 2 * ((sub % 8) / 2);
        let scale = d * (i32::from(scale_code(&block.scales, sub)) - 32) as f32;
        for ((value, &q), &mask) in values.iter_mut().zip(codes).zip(masks) {
            let low = i32::from((q >> shift) & 3);
            let high = i32::from((mask >> (sub / 2)) & 1) << 2;
            *value = scale * (low + high - 4) as f32;
        }
    }
}

/// The 6-bit scale of sub-block `sub` (0 to 15), 32 too large.
#[inline(always)]
fn scale_code(scales: &[u8; 12], sub: usize) -> u8 {
    let low = (scales[sub % 8] >> (4 * (sub / 8))) & 15;
    let high = (scales[8 + sub % 4] >> (2 * (sub / 4))) & 3;
    low | (high << 4)
}
