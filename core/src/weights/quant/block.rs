//! What the formats share: walking blocks, half floats.

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

/// A block of `VALUES` weights, byte for byte as it is stored.
pub(super) trait Block<const VALUES: usize>: Pod {
    /// Exact values. Inlined into callers compiled for wider instruction sets; therefore without
    /// closures, which would be compiled for the smallest set wherever they are not inlined.
    fn decode(&self, out: &mut [f32; VALUES]);
}

/// Stands at the start of the loops over blocks and sub-blocks. It compiles to nothing, but keeps
/// the compiler from computing value `j` of many blocks at a time, which ends in scattered stores;
/// within a block the values lie side by side.
#[inline(always)]
pub(super) fn boundary() {
    std::hint::black_box(());
}

/// Decodes blocks one after the other. Surplus bytes or values are left alone; callers check.
#[inline(always)]
pub(super) fn decode_blocks<B: Block<VALUES>, const VALUES: usize>(bytes: &[u8], out: &mut [f32]) {
    let whole = bytes.len() - bytes.len() % size_of::<B>();
    // The cast cannot fail: blocks have no alignment and divide the length.
    let blocks: &[B] = bytemuck::try_cast_slice(&bytes[..whole]).unwrap_or_default();
    for (block, values) in blocks.iter().zip(out.as_chunks_mut::<VALUES>().0) {
        if VALUES > 1 {
            boundary();
        }
        block.decode(values);
    }
}

/// Codes of 16 weights that lie side by side. The decoders work on such arrays by value, which the
/// compiler turns into vectors whatever it knows about overlapping memory.
pub(super) type Codes = [i32; 16];

/// `(byte >> shift) & mask` of 16 bytes.
#[inline(always)]
pub(super) fn bits(bytes: &[u8; 16], shift: usize, mask: i32) -> Codes {
    let mut codes = [0; 16];
    for (code, &byte) in codes.iter_mut().zip(bytes) {
        *code = (i32::from(byte) >> shift) & mask;
    }
    codes
}

/// `low | (high << 4)`.
#[inline(always)]
pub(super) fn joined(low: Codes, high: Codes) -> Codes {
    let mut codes = low;
    for (code, high) in codes.iter_mut().zip(high) {
        *code |= high << 4;
    }
    codes
}

/// The bits of a word of 16, lowest first. By table, since the compiler rewrites a bit test of each
/// lane into shifts that differ from lane to lane.
#[inline(always)]
pub(super) fn spread_bits(word: [u8; 2]) -> Codes {
    static SPREAD: [[u8; 8]; 256] = spread_bytes();
    let mut codes = [0; 16];
    for (codes, byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(word) {
        for (code, &bit) in codes.iter_mut().zip(&SPREAD[usize::from(byte)]) {
            *code = i32::from(bit);
        }
    }
    codes
}

const fn spread_bytes() -> [[u8; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut index = 0;
    while index < 256 * 8 {
        table[index / 8][index % 8] = ((index / 8) >> (index % 8)) as u8 & 1;
        index += 1;
    }
    table
}

/// `scale * (code - zero)`.
#[inline(always)]
pub(super) fn scaled(scale: f32, codes: Codes, zero: i32) -> [f32; 16] {
    let mut values = [0.0; 16];
    for (value, code) in values.iter_mut().zip(codes) {
        *value = scale * (code - zero) as f32;
    }
    values
}

/// `scale * code + offset`.
#[inline(always)]
pub(super) fn affine(scale: f32, codes: Codes, offset: f32) -> [f32; 16] {
    let mut values = [0.0; 16];
    for (value, code) in values.iter_mut().zip(codes) {
        *value = scale * code as f32 + offset;
    }
    values
}

/// Encodes blocks one after the other onto `out`. `importance` has a weight for each value, or for
/// each column of the rows that `values` are; empty = all count the same. `encode` gives up on a
/// block whose scale does not fit a half float.
///
/// # Errors
/// The index of the first value of the block given up.
pub(super) fn encode_blocks<B: Block<VALUES>, const VALUES: usize>(
    values: &[f32],
    importance: &[f32],
    out: &mut Vec<u8>,
    encode: impl Fn(&[f32; VALUES], &[f32; VALUES]) -> Option<B>,
) -> Result<(), usize> {
    let importance = importance.as_chunks::<VALUES>().0;
    for (index, values) in values.as_chunks::<VALUES>().0.iter().enumerate() {
        let weights = importance.get(index % importance.len().max(1));
        let block = encode(values, weights.unwrap_or(&[1.0; VALUES])).ok_or(index * VALUES)?;
        out.extend_from_slice(bytemuck::bytes_of(&block));
    }
    Ok(())
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
