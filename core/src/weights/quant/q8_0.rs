//! Q8_0: `d * q`, blocks of 32.

use super::block::{Block, Half, scaled};
use super::fit::{extreme, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights, a signed byte each.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q8_0 {
    d: Half,
    qs: [i8; 32],
}

impl Block<32> for Q8_0 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        let d = self.d.to_f32();
        for (values, qs) in out.as_chunks_mut().0.iter_mut().zip(self.qs.as_chunks::<16>().0) {
            let mut codes = [0; 16];
            for (code, &q) in codes.iter_mut().zip(qs) {
                *code = i32::from(q);
            }
            *values = scaled(d, codes, 0);
        }
    }
}

/// The weight of largest magnitude becomes 127 or -127; codes round half away from zero, before the
/// scale itself is rounded: what every engine does, so that the bits are the same everywhere. Weights
/// change nothing, since a smaller scale would clip the largest value.
pub(super) fn encode(values: &[f32; 32], _weights: &[f32; 32]) -> Option<Q8_0> {
    let scale = extreme(values).abs() / 127.0;
    let inverse = reciprocal(scale);
    let d = Half::from_f32(scale);
    let qs = values.map(|v| (v * inverse).round() as i8);
    d.is_finite().then_some(Q8_0 { d, qs })
}
