//! Types with blocks of 32 values. Each function packs one block as group `i` of a row and returns a
//! bound on the magnitude of its values.

use super::record::{Row, codes, half_magnitude, nibbles, u32_at};

pub(super) fn q8_0(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    row.plane8(0, i, &block[2..34]);
    row.header(2048, 8)[2 * i..2 * i + 2].copy_from_slice(&block[..2]);
    half_magnitude(block, 0) * 128.0
}

pub(super) fn q4_0(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    row.plane4(0, i, &nibbles(&block[2..]));
    row.header(2048, 16)[2 * i..2 * i + 2].copy_from_slice(&block[..2]);
    half_magnitude(block, 0) * 8.0
}

pub(super) fn q4_1(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    row.plane4(0, i, &nibbles(&block[4..]));
    scale_and_minimum(block, row.header(2048, 32), i);
    half_magnitude(block, 0) * 15.0 + half_magnitude(block, 2)
}

pub(super) fn q5_0(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    fifth_bits(u32_at(block, 2), row, i);
    row.plane4(0, i, &nibbles(&block[6..]));
    row.header(2560, 16)[2 * i..2 * i + 2].copy_from_slice(&block[..2]);
    half_magnitude(block, 0) * 16.0
}

pub(super) fn q5_1(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    fifth_bits(u32_at(block, 4), row, i);
    row.plane4(0, i, &nibbles(&block[8..]));
    scale_and_minimum(block, row.header(2560, 32), i);
    half_magnitude(block, 0) * 31.0 + half_magnitude(block, 2)
}

pub(super) fn iq4_nl(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    q4_0(block, row, i) * 16.0
}

pub(super) fn mxfp4(block: &[u8], row: &mut Row<'_>, i: usize) -> f32 {
    row.plane4(0, i, &nibbles(&block[1..]));
    row.header(2048, 8)[i] = block[0];
    // 6 * 2^(e - 127), from above: the exponent field of the power is e itself.
    f32::from_bits(u32::from(block[0].max(1)) << 23) * 8.0
}

fn fifth_bits(bits: u32, row: &mut Row<'_>, i: usize) {
    row.plane1(2048, i, &codes(|e| (bits >> e & 1) as u8));
}

fn scale_and_minimum(block: &[u8], header: &mut [u8], i: usize) {
    header[2 * i..2 * i + 2].copy_from_slice(&block[..2]);
    header[16 + 2 * i..18 + 2 * i].copy_from_slice(&block[2..4]);
}
