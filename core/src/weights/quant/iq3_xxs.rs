//! IQ3_XXS: codebook rows of 4 weights with signs, a 4-bit scale for each 32, blocks of 256.

use super::block::{Block, Half, boundary};
use super::codebook::{Codebook, Coded, Halves, Places, quad_places};
use super::fit::Samples;
use super::grids::{IQ3_XXS_GRID, SIGNS};
use super::iq2_xxs::{decode_row, pack_signs};
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 8 groups of 8 codebook rows.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq3Xxs {
    d: Half,
    qs: [[u8; 8]; 8],
    /// For each group four 7-bit sign indices, then the scale in the top 4 bits.
    signs_and_scales: [[u8; 4]; 8],
}

impl Block<256> for Iq3Xxs {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (group, values) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            boundary();
            let aux = u32::from_le_bytes(self.signs_and_scales[group]);
            let scale = d * (0.5 + (aux >> 28) as f32) * 0.5;
            for (l, values) in values.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let magnitudes = IQ3_XXS_GRID[usize::from(self.qs[group][l])].to_le_bytes();
                // One sign mask serves two rows: its lower half the first, its upper half the second.
                let signs = SIGNS[((aux >> (7 * (l / 2))) & 127) as usize] >> (4 * (l % 2));
                decode_row(scale, magnitudes, signs, values);
            }
        }
    }
}

/// The codebook for the search.
struct Grid;

impl Codebook<4, 256> for Grid {
    const TOP: f32 = 62.0;
    fn places() -> &'static Places<4, 256> {
        static PLACES: Places<4, 256> = quad_places(&IQ3_XXS_GRID);
        &PLACES
    }
}

/// Scales, rows and signs of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Iq3Xxs> {
    let fit = Coded::<8>::fit::<Halves<256, Grid>>(Samples { values, weights }, 0.5);
    let groups = fit.choices.as_chunks::<4>().0;
    let row = |group: usize, quad: usize| groups[group][quad / 2].rows[quad % 2] as u8;
    let qs = std::array::from_fn(|group| std::array::from_fn(|quad| row(group, quad)));
    let signs_and_scales =
        std::array::from_fn(|group| pack_signs(&groups[group], fit.scales[group]));
    fit.d.is_finite().then_some(Iq3Xxs { d: fit.d, qs, signs_and_scales })
}
