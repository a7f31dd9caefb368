//! IQ4_XS: the codes of IQ4_NL with a signed 6-bit scale for each 32 weights, blocks of 256.

use super::block::{Block, Half, boundary};
use super::fit::Samples;
use super::iq4_nl::{decode_codes, encode_codes, levels};
use super::super_block::SignedScales;
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 8 groups of 32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq4Xs {
    d: Half,
    /// Upper 2 bits of the scale of group `b` at bit `2 b`.
    scales_h: [u8; 2],
    /// Low 4 bits of the scales, the low nibble first.
    scales_l: [u8; 4],
    qs: [[u8; 16]; 8],
}

impl Block<256> for Iq4Xs {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        let scales_h = u16::from_le_bytes(self.scales_h);
        for (group, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            boundary();
            let low = (self.scales_l[group / 2] >> (4 * (group % 2))) & 15;
            let high = (scales_h >> (2 * group)) & 3;
            let scale = i32::from(low) | (i32::from(high) << 4);
            decode_codes(d * (scale - 32) as f32, &self.qs[group], values);
        }
    }
}

/// Scales and codes of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Iq4Xs> {
    let fit = SignedScales::<8>::fit(Samples { values, weights }, &levels(), -32);
    let (mut scales_h, mut scales_l, mut qs) = (0u16, [0; 4], [[0; 16]; 8]);
    for (group, values) in values.as_chunks::<32>().0.iter().enumerate() {
        let code = (fit.codes[group] + 32) as u8;
        scales_l[group / 2] |= (code & 15) << (4 * (group % 2));
        scales_h |= u16::from(code >> 4) << (2 * group);
        qs[group] = encode_codes(values, fit.scale(group));
    }
    let scales_h = scales_h.to_le_bytes();
    fit.d.is_finite().then_some(Iq4Xs { d: fit.d, scales_h, scales_l, qs })
}
