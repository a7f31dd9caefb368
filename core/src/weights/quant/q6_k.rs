//! Q6_K: `d * sc * (q - 32)` with a signed byte `sc` for each 16 weights, blocks of 256.

use super::block::{Block, Half, bits, boundary, joined, scaled};
use super::fit::{Samples, Symmetric, reciprocal, round_within};
use super::super_block::SignedScales;
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: two halves of 64 bytes of `ql` and 32 bytes of `qh` each.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q6K {
    /// Low 4 bits: of weights 0 to 63 of a half in the low nibbles, of 64 to 127 in the high ones.
    ql: [u8; 128],
    /// Upper 2 bits of four weights that lie 32 apart.
    qh: [u8; 64],
    scales: [i8; 16],
    d: Half,
}

impl Block<256> for Q6K {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (sub, values) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            boundary();
            let (half, quarter) = (sub / 8, (sub % 8) / 2);
            let low = &self.ql.as_chunks::<16>().0[4 * half + 2 * (quarter % 2) + sub % 2];
            let high = &self.qh.as_chunks::<16>().0[2 * half + sub % 2];
            let (low_shift, high_shift) = (4 * (quarter / 2), 2 * quarter);
            let scale = d * f32::from(self.scales[sub]);
            let (low, high) = (bits(low, low_shift, 15), bits(high, high_shift, 3));
            *values = scaled(scale, joined(low, high), 32);
        }
    }
}

/// Scales and codes of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Q6K> {
    let level = |v| round_within(v, -32.0, 31.0);
    let levels = Symmetric { end: -32.0, step: 0.15, level };
    let fit = SignedScales::<16>::fit(Samples { values, weights }, &levels, -128);
    let (mut ql, mut qh) = ([0; 128], [0; 64]);
    for (at, value) in values.iter().enumerate() {
        let code = (level(value * reciprocal(fit.scale(at / 16))) + 32.0) as u8;
        let (half, quarter, l) = (at / 128, at % 128 / 32, at % 32);
        ql[64 * half + 32 * (quarter % 2) + l] |= (code & 15) << (4 * (quarter / 2));
        qh[32 * half + l] |= (code >> 4) << (2 * quarter);
    }
    let scales = fit.codes.map(|code| code as i8);
    fit.d.is_finite().then_some(Q6K { ql, qh, scales, d: fit.d })
}
