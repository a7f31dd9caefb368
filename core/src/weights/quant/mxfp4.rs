//! MXFP4: E2M1 codes under a shared power of two, blocks of 32.

use super::block::{Block, pack_nibbles};
use super::fit::Samples;
use super::grids::MXFP4_DOUBLED_VALUES;
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights, `2^(e - 127)` times their E2M1 values; nibbles as in Q4_0.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mxfp4 {
    e: u8,
    qs: [u8; 16],
}

/// Half the scale, for doubled values: 2^(e - 128), a subnormal number for the two smallest `e`.
#[inline(always)]
fn half_scale(e: u8) -> f32 {
    let exponent = u32::from(e);
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}

impl Block<32> for Mxfp4 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        let half_scale = half_scale(self.e);
        for (j, &q) in self.qs.iter().enumerate() {
            out[j] = half_scale * f32::from(MXFP4_DOUBLED_VALUES[usize::from(q & 15)]);
            out[j + 16] = half_scale * f32::from(MXFP4_DOUBLED_VALUES[usize::from(q >> 4)]);
        }
    }
}

/// The power of two and codes of least squared error.
pub(super) fn encode(values: &[f32; 32], weights: &[f32; 32]) -> Option<Mxfp4> {
    let x = Samples { values, weights };
    // The largest magnitude between 4 and 6 times the scale, or near it.
    let largest = x.extreme().abs().log2().floor();
    let middle = if largest.is_finite() { largest as i32 + 127 - 2 } else { 0 };
    let (mut best, mut least) = (0, f32::INFINITY);
    for exponent in middle - 1..=middle + 1 {
        let exponent = exponent.clamp(0, 254) as u8;
        let scale = half_scale(exponent);
        let stored =
            |v: f32| scale * f32::from(MXFP4_DOUBLED_VALUES[usize::from(nearest(v, scale))]);
        let error = x.error(stored);
        if error < least {
            (best, least) = (exponent, error);
        }
    }
    let codes = values.map(|v| nearest(v, half_scale(best)));
    Some(Mxfp4 { e: best, qs: pack_nibbles(&codes) })
}

/// Code of the nearest doubled value times `half_scale`; the smaller magnitude wins ties.
fn nearest(value: f32, half_scale: f32) -> u8 {
    let (magnitudes, _) = MXFP4_DOUBLED_VALUES.split_at(8);
    let midpoints = magnitudes.windows(2).map(|pair| f32::from(pair[0]) + f32::from(pair[1]));
    let code = midpoints.filter(|twice| value.abs() > twice / 2.0 * half_scale).count() as u8;
    if value < 0.0 && code > 0 { code | 8 } else { code }
}
