//! What the formats share: walking blocks, half floats, and the scale search of the quantisers.

use bytemuck::Pod;

/// A half float as it lies in a block, at any alignment.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct Half([u8; 2]);

impl Half {
    /// Rounds to nearest even. Values beyond the range become infinite.
    pub(super) fn from_f32(value: f32) -> Self {
        Self(half::f16::from_f32(value).to_le_bytes())
    }

    /// Exact value, from bits alone: a conversion that asks the CPU for its features at each call
    /// would keep the decoders from being vectorised.
    #[inline(always)]
    pub(super) fn to_f32(self) -> f32 {
        let bits = u32::from(u16::from_le_bytes(self.0));
        let sign = (bits & 0x8000) << 16;
        let magnitude = (bits & 0x7fff) << 13;
        let exponent = bits & 0x7c00;
        let value = if exponent == 0 {
            // The fraction is appended to 2^-14, which is then taken off again.
            const SMALLEST_NORMAL: u32 = 113 << 23;
            (f32::from_bits(magnitude + SMALLEST_NORMAL) - f32::from_bits(SMALLEST_NORMAL))
                .to_bits()
        } else if exponent == 0x7c00 {
            magnitude + (224 << 23)
        } else {
            magnitude + (112 << 23)
        };
        f32::from_bits(value | sign)
    }

    pub(super) fn is_finite(self) -> bool {
        u16::from_le_bytes(self.0) & 0x7c00 != 0x7c00
    }
}

/// Decodes blocks one after the other. Surplus bytes or values are left alone; callers check.
#[inline(always)]
pub(super) fn decode_blocks<Block: Pod, const VALUES: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&Block, &mut [f32; VALUES]),
) {
    let blocks = bytes.chunks_exact(size_of::<Block>());
    for (block, values) in blocks.zip(out.as_chunks_mut::<VALUES>().0) {
        if let Ok(block) = bytemuck::try_from_bytes(block) {
            decode(block, values);
        }
    }
}

/// Encodes blocks one after the other onto `out`. `encode` gives up on a block whose scale does not
/// fit a half float.
///
/// # Errors
/// The index of the first value of the block given up.
pub(super) fn encode_blocks<Block: Pod, const VALUES: usize>(
    values: &[f32],
    out: &mut Vec<u8>,
    encode: impl Fn(&[f32; VALUES]) -> Option<Block>,
) -> Result<(), usize> {
    for (index, values) in values.as_chunks::<VALUES>().0.iter().enumerate() {
        let block = encode(values).ok_or(index * VALUES)?;
        out.extend_from_slice(bytemuck::bytes_of(&block));
    }
    Ok(())
}

/// The value of largest magnitude, with its sign; the first one wins ties.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |best: f32, &v| if v.abs() > best.abs() { v } else { best })
}

/// Smallest and largest value.
pub(super) fn range(values: &[f32; 32]) -> (f32, f32) {
    let start = (values[0], values[0]);
    values.iter().fold(start, |(low, high), &v| (low.min(v), high.max(v)))
}

/// `1 / scale`, or 0 for a block of zeros.
pub(super) fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Packs 32 codes of 4 bits: the first half into the low nibbles, the second into the high ones.
pub(super) fn pack_nibbles(codes: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| (codes[j] & 15) | (codes[j + 16] << 4))
}

/// Gathers bit 4 of 32 codes; bit `e` belongs to code `e`.
pub(super) fn pack_fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let bits = codes.iter().rev().fold(0u32, |bits, code| (bits << 1) | u32::from(code >> 4 & 1));
    bits.to_le_bytes()
}
