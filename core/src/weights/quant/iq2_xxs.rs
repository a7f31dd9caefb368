//! IQ2_XXS: codebook rows of 8 weights with signs, a 4-bit scale for each 32, blocks of 256.

use super::block::{Block, Half, boundary};
use super::codebook::{Choice, Codebook, Coded, Places, Whole, octet_places};
use super::fit::Samples;
use super::grids::{IQ2_XXS_GRID, SIGNS};
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 8 groups of 32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq2Xxs {
    d: Half,
    groups: [Group; 8],
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Group {
    /// Codebook rows of four times 8 weights.
    rows: [u8; 4],
    /// Four 7-bit sign indices, then the scale in the top 4 bits.
    signs_and_scale: [u8; 4],
}

impl Block<256> for Iq2Xxs {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            boundary();
            let group = &self.groups[group];
            let aux = u32::from_le_bytes(group.signs_and_scale);
            let scale = d * (0.5 + (aux >> 28) as f32) * 0.25;
            for (l, values) in values.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let magnitudes = IQ2_XXS_GRID[usize::from(group.rows[l])].to_le_bytes();
                let signs = SIGNS[((aux >> (7 * l)) & 127) as usize];
                decode_row(scale, magnitudes, signs, values);
            }
        }
    }
}

/// `scale * magnitude * sign` of a codebook row.
#[inline(always)]
pub(super) fn decode_row<const N: usize>(
    scale: f32,
    magnitudes: [u8; N],
    signs: u8,
    out: &mut [f32; N],
) {
    for (k, (value, magnitude)) in out.iter_mut().zip(magnitudes).enumerate() {
        // Multiplying by -1 is flipping the sign bit.
        let sign = (u32::from(signs) >> k & 1) << 31;
        *value = f32::from_bits((scale * f32::from(magnitude)).to_bits() ^ sign);
    }
}

/// The codebook for the search.
struct Grid;

impl Codebook<8, 256> for Grid {
    const TOP: f32 = 43.0;
    fn places() -> &'static Places<8, 256> {
        static PLACES: Places<8, 256> = octet_places(&IQ2_XXS_GRID);
        &PLACES
    }
}

/// Scales, rows and signs of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Iq2Xxs> {
    let fit = Coded::<8>::fit::<Whole<256, Grid>>(Samples { values, weights }, 0.25);
    let groups = std::array::from_fn(|group| {
        let choices = &fit.choices.as_chunks::<4>().0[group];
        Group {
            rows: choices.map(|choice| choice.rows[0] as u8),
            signs_and_scale: pack_signs(choices, fit.scales[group]),
        }
    });
    fit.d.is_finite().then_some(Iq2Xxs { d: fit.d, groups })
}

/// Four sign indices of 7 bits, and a scale of 4 bits above them.
pub(super) fn pack_signs(choices: &[Choice; 4], scale: u8) -> [u8; 4] {
    let start = u32::from(scale) << 28;
    let join = |aux, (l, choice): (usize, &Choice)| aux | u32::from(choice.signs & 127) << (7 * l);
    choices.iter().enumerate().fold(start, join).to_le_bytes()
}
