//! Codebook types: indices stay as they are, in the order in which lanes ask for them. Each function
//! packs one block of 256 values and returns a bound on the magnitude of its values.

use super::record::{Row, half_magnitude};

pub(super) fn iq2_xxs(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    for (i, group) in block[2..66].chunks_exact(8).enumerate() {
        row.header(i * 128, 8).copy_from_slice(group);
    }
    row.header(1024, 2).copy_from_slice(&block[..2]);
    half_magnitude(block, 0) * (15.5 * 0.25 * 43.0)
}

pub(super) fn iq2_xs(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    for (i, group) in block[2..66].chunks_exact(8).enumerate() {
        row.header(i * 128, 8).copy_from_slice(group);
    }
    row.header(1024, 8).copy_from_slice(&block[66..74]);
    row.header(1152, 2).copy_from_slice(&block[..2]);
    half_magnitude(block, 0) * (15.5 * 0.25 * 43.0)
}

pub(super) fn iq3_xxs(block: &[u8], row: &mut Row<'_>, _i: usize) -> f32 {
    let (indices, signs) = (&block[2..66], &block[66..98]);
    for i in 0..8 {
        for t in 0..4 {
            let start = i / 4 * 512 + (4 * row.g + t) * 16 + i % 4 * 4 + 2 * row.r;
            row.record[start] = indices[8 * i + t];
            row.record[start + 1] = indices[8 * i + 4 + t];
        }
        row.header(1024 + 64 * i, 4).copy_from_slice(&signs[4 * i..4 * i + 4]);
    }
    row.header(1536, 2).copy_from_slice(&block[..2]);
    half_magnitude(block, 0) * (15.5 * 0.5 * 62.0)
}
