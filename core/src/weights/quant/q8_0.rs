//! Q8_0: `d * q`, blocks of 32.

use super::block::{Half, extreme, reciprocal};
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights, a signed byte each.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Q8_0 {
    d: Half,
    qs: [i8; 32],
}

#[inline(always)]
pub(super) fn decode(block: &Q8_0, out: &mut [f32; 32]) {
    let d = block.d.to_f32();
    for (value, &q) in out.iter_mut().zip(&block.qs) {
        *value = d * f32::from(q);
    }
}

/// The weight of largest magnitude becomes 127 or -127; codes round half away from zero, before the
/// scale itself is rounded.
pub(super) fn encode(values: &[f32; 32]) -> Option<Q8_0> {
    let scale = extreme(values).abs() / 127.0;
    let inverse = reciprocal(scale);
    let d = Half::from_f32(scale);
    let qs = values.map(|v| (v * inverse).round() as i8);
    d.is_finite().then_some(Q8_0 { d, qs })
}
