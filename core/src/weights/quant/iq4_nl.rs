//! IQ4_NL: 4-bit codes of a non-linear scale, blocks of 32.

use super::block::{Block, Half, pack_nibbles};
use super::fit::{Samples, Symmetric, reciprocal};
use super::grids::IQ4_NL_VALUES;
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights; nibbles as in Q4_0.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq4Nl {
    d: Half,
    qs: [u8; 16],
}

impl Block<32> for Iq4Nl {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        decode_codes(self.d.to_f32(), &self.qs, out);
    }
}

/// 32 weights of scale `d`; also the inner loop of IQ4_XS.
#[inline(always)]
pub(super) fn decode_codes(d: f32, qs: &[u8; 16], out: &mut [f32; 32]) {
    for (j, &q) in qs.iter().enumerate() {
        out[j] = d * f32::from(IQ4_NL_VALUES[usize::from(q & 15)]);
        out[j + 16] = d * f32::from(IQ4_NL_VALUES[usize::from(q >> 4)]);
    }
}

/// The codebook for the search of scales.
pub(super) fn levels() -> Symmetric<impl Fn(f32) -> f32> {
    let level = |v| f32::from(IQ4_NL_VALUES[usize::from(nearest(v))]);
    Symmetric { end: f32::from(IQ4_NL_VALUES[0]), step: 2.0, level }
}

/// Nibbles of 32 weights for a scale.
pub(super) fn encode_codes(values: &[f32; 32], scale: f32) -> [u8; 16] {
    let inverse = reciprocal(scale);
    pack_nibbles(&values.map(|v| nearest(v * inverse)))
}

/// Codes for the scale of least squared error; the codes follow from the rounded scale.
pub(super) fn encode(values: &[f32; 32], weights: &[f32; 32]) -> Option<Iq4Nl> {
    let d = Half::from_f32(levels().scale(Samples { values, weights }));
    d.is_finite().then(|| Iq4Nl { d, qs: encode_codes(values, d.to_f32()) })
}

/// Code of the nearest value of the codebook; the lower one wins ties.
fn nearest(value: f32) -> u8 {
    let midpoints = IQ4_NL_VALUES.windows(2).map(|pair| f32::from(pair[0]) + f32::from(pair[1]));
    midpoints.filter(|midpoint| value > midpoint / 2.0).count() as u8
}
