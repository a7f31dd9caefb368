//! Q3_K: `d * sc * q` with a signed 6-bit `sc` for each 16 weights, blocks of 256.

use super::block::{Block, Half, bits, boundary, scaled};
use super::fit::{Samples, Symmetric, reciprocal, round_within};
use super::super_block::{SignedScales, pack_bits, pack_pairs};
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

impl Block<256> for Q3K {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            boundary();
            let codes = &self.qs.as_chunks::<16>().0[2 * (sub / 8) + sub % 2];
            let masks = &self.hmask.as_chunks::<16>().0[sub % 2];
            let shift = 2 * ((sub % 8) / 2);
            let scale = d * (i32::from(scale_code(&self.scales, sub)) - 32) as f32;
            let (low, high) = (bits(codes, shift, 3), bits(masks, sub / 2, 1));
            let mut codes = low;
            for (code, high) in codes.iter_mut().zip(high) {
                *code |= high << 2;
            }
            *values = scaled(scale, codes, 4);
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

/// Scales and codes of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Q3K> {
    let level = |v| round_within(v, -4.0, 3.0);
    let levels = Symmetric { end: -4.0, step: 0.1, level };
    let fit = SignedScales::<16>::fit(Samples { values, weights }, &levels, -32);
    let mut scales = [0; 12];
    for (sub, code) in fit.codes.iter().enumerate() {
        let code = (code + 32) as u8;
        scales[sub % 8] |= (code & 15) << (4 * (sub / 8));
        scales[8 + sub % 4] |= (code >> 4) << (2 * (sub / 4));
    }
    let codes =
        std::array::from_fn(|at| (level(values[at] * reciprocal(fit.scale(at / 16))) + 4.0) as u8);
    let (hmask, qs) = (pack_bits(&codes, 2), pack_pairs(&codes));
    fit.d.is_finite().then_some(Q3K { hmask, qs, scales, d: fit.d })
}
