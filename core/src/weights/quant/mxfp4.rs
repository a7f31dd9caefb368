//! MXFP4: E2M1 codes under a shared power of two, blocks of 32.

use super::block::Block;
use super::grids::MXFP4_DOUBLED_VALUES;
use bytemuck::{Pod, Zeroable};

/// A block of 32 weights, `2^(e - 127)` times their E2M1 values; nibbles as in Q4_0.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mxfp4 {
    e: u8,
    qs: [u8; 16],
}

impl Block<32> for Mxfp4 {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 32]) {
        // Half the scale, for doubled values: 2^(e - 128), a subnormal number for the two smallest e.
        let exponent = u32::from(self.e);
        let half_scale = f32::from_bits(if exponent < 2 {
            0x0020_0000 << exponent
        } else {
            (exponent - 1) << 23
        });
        for (j, &q) in self.qs.iter().enumerate() {
            out[j] = half_scale * f32::from(MXFP4_DOUBLED_VALUES[usize::from(q & 15)]);
            out[j + 16] = half_scale * f32::from(MXFP4_DOUBLED_VALUES[usize::from(q >> 4)]);
        }
    }
}
