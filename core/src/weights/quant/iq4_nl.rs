//! IQ4_NL: 4-bit codes of a non-linear scale, blocks of 32.

use super::block::{Half, extreme, pack_nibbles, reciprocal};
use super::grids::IQ4_NL_VALUES;
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights; nibbles as in Q4_0.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq4Nl {
    d: Half,
    qs: [u8; 16],
}

#[inline(always)]
pub(super) fn decode(block: &Iq4Nl, out: &mut [f32; 32]) {
    decode_codes(block.d.to_f32(), &block.qs, out);
}

/// 32 weights of scale `d`; also the inner loop of IQ4_XS.
#[inline(always)]
pub(super) fn decode_codes(d: f32, qs: &[u8; 16], out: &mut [f32; 32]) {
    for (j, &q) in qs.iter().enumerate() {
        out[j] = d * f32::from(IQ4_NL_VALUES[usize::from(q & 15)]);
        out[j + 16] = d * f32::from(IQ4_NL_VALUES[usize::from(q >> 4)]);
    }
}

/// Tries scales around the one that maps the weight of largest magnitude to the end of the codebook
/// and keeps the one with the smallest squared error; each try is refitted by least squares.
pub(super) fn encode(values: &[f32; 32]) -> Option<Iq4Nl> {
    let extreme = extreme(values);
    let energy = |scale: f32| {
        let inverse = reciprocal(scale);
        let (mut cross, mut square) = (0f32, 0f32);
        for &v in values {
            let level = f32::from(IQ4_NL_VALUES[usize::from(nearest(v * inverse))]);
            cross += v * level;
            square += level * level;
        }
        // Least squares gives scale cross / square and lowers the error by cross^2 / square.
        (cross * cross / square, cross / square)
    };
    let end = f32::from(IQ4_NL_VALUES[0]);
    let best = (-7..=7)
        .map(|step| energy(extreme / (end + step as f32)))
        .fold((0.0, 0.0), |best, next| if next.0 > best.0 { next } else { best });
    let d = Half::from_f32(best.1);
    let inverse = reciprocal(d.to_f32());
    let codes = values.map(|v| nearest(v * inverse));
    d.is_finite().then(|| Iq4Nl { d, qs: pack_nibbles(&codes) })
}

/// Code of the nearest value of the codebook; the lower one wins ties.
fn nearest(value: f32) -> u8 {
    let midpoints = IQ4_NL_VALUES.windows(2).map(|pair| f32::from(pair[0]) + f32::from(pair[1]));
    midpoints.filter(|midpoint| value > midpoint / 2.0).count() as u8
}
