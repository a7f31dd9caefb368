//! K types: blocks of 256 values. Each function packs one block, which is a whole row of a record, and
//! returns a bound on the magnitude of its values.

use super::record::{Row, codes, half_magnitude};

pub(super) fn q2_k(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    two_bits(&block[16..80], row);
    row.header(1024, 16).copy_from_slice(&block[..16]);
    row.header(1280, 4).copy_from_slice(&block[80..84]);
    half_magnitude(block, 80) * 45.0 + half_magnitude(block, 82) * 15.0
}

pub(super) fn q3_k(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    let (mask, scales) = (&block[..32], &block[96..108]);
    two_bits(&block[32..96], row);
    for i in 0..8 {
        row.plane1(1024, i, &codes(|l| mask[l] >> i & 1));
    }
    // Scale s: low nibble in `scales[s % 8]`, upper bits in `scales[8 + s % 4]`.
    let nibble = |s: usize| u64::from(scales[s % 8] >> (s / 8 * 4) & 15);
    let upper = |s: usize| u32::from(scales[8 + s % 4] >> (s / 4 * 2) & 3);
    let low = (0..16).map(|s| nibble(s) << (4 * s)).sum::<u64>();
    let high = (0..16).map(|s| upper(s) << (2 * s)).sum::<u32>();
    let header = row.header(1536, 16);
    header[..8].copy_from_slice(&low.to_le_bytes());
    header[8..12].copy_from_slice(&high.to_le_bytes());
    header[12..14].copy_from_slice(&block[108..110]);
    half_magnitude(block, 108) * 128.0
}

pub(super) fn q4_k(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    nibble_pairs(&block[16..144], row);
    q45_header(block, row.header(2048, 16));
    half_magnitude(block, 0) * (63.0 * 15.0) + half_magnitude(block, 2) * 63.0
}

pub(super) fn q5_k(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    nibble_pairs(&block[48..176], row);
    for i in 0..8 {
        row.plane1(2048, i, &codes(|l| block[16 + l] >> i & 1));
    }
    q45_header(block, row.header(2560, 16));
    half_magnitude(block, 0) * (63.0 * 31.0) + half_magnitude(block, 2) * 63.0
}

pub(super) fn q6_k(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    for i in 0..8 {
        let (half, quarter) = (i / 4, i % 4);
        let low = &block[64 * half + 32 * (quarter % 2)..][..32];
        let high = &block[128 + 32 * half..][..32];
        row.plane4(0, i, &codes(|l| low[l] >> (quarter / 2 * 4) & 15));
        row.plane2(2048, i, &codes(|l| high[l] >> (2 * quarter) & 3));
    }
    row.header(3072, 16).copy_from_slice(&block[192..208]);
    row.header(3328, 2).copy_from_slice(&block[208..210]);
    half_magnitude(block, 208) * (128.0 * 32.0)
}

pub(super) fn iq4_xs(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    for (i, bytes) in block[8..136].chunks_exact(16).enumerate() {
        row.plane4(0, i, &super::record::nibbles(bytes));
    }
    row.header(2048, 8).copy_from_slice(&block[..8]);
    half_magnitude(block, 0) * (32.0 * 127.0)
}

/// The 2-bit codes of Q2_K and Q3_K: group `4 n + p` has bits 2p of bytes 32n.. .
fn two_bits(qs: &[u8], row: &mut Row<'_>) {
    for i in 0..8 {
        let bytes = &qs[i / 4 * 32..][..32];
        row.plane2(0, i, &codes(|l| bytes[l] >> (i % 4 * 2) & 3));
    }
}

/// The nibbles of Q4_K and Q5_K: groups 2c and 2c + 1 are the low and high nibbles of bytes 32c.. .
fn nibble_pairs(qs: &[u8], row: &mut Row<'_>) {
    for i in 0..8 {
        let bytes = &qs[i / 2 * 32..][..32];
        row.plane4(0, i, &codes(|l| bytes[l] >> (i % 2 * 4) & 15));
    }
}

/// d and dmin, then the 6-bit scales and minimums: the last four minimums in the bits left over.
fn q45_header(block: &[u8], header: &mut [u8]) {
    let s = &block[4..16];
    header[..4].copy_from_slice(&block[..4]);
    for j in 0..4 {
        let last_scale = s[j + 8] & 15 | s[j] >> 6 << 4;
        let last_minimum = s[j + 8] >> 4 | s[j + 4] >> 6 << 4;
        header[4 + j] = s[j] & 63 | last_minimum << 6;
        header[8 + j] = last_scale | last_minimum >> 2 << 6;
        header[12 + j] = s[j + 4] & 63 | last_minimum >> 4 << 6;
    }
}
