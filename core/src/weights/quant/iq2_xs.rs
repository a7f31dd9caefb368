//! IQ2_XS: codebook rows of 8 weights with signs, a 4-bit scale for each 16, blocks of 256.

use super::block::{Block, Half, boundary};
use super::codebook::{Codebook, Coded, Places, Whole, octet_places};
use super::fit::Samples;
use super::grids::{IQ2_XS_GRID, SIGNS};
use super::iq2_xxs::decode_row;
use bytemuck::{Pod, Zeroable};

/// A block of 256 weights: 32 codebook rows.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Iq2Xs {
    d: Half,
    /// Codebook row in the low 9 bits, sign index in the upper 7.
    qs: [[u8; 2]; 32],
    /// A nibble for each two codebook rows, the low one first.
    scales: [u8; 8],
}

impl Block<256> for Iq2Xs {
    #[inline(always)]
    fn decode(&self, out: &mut [f32; 256]) {
        let d = self.d.to_f32();
        for (row, values) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            boundary();
            let code = usize::from(u16::from_le_bytes(self.qs[row]));
            let scale = (self.scales[row / 4] >> (4 * (row % 4 / 2))) & 15;
            let scale = d * (0.5 + f32::from(scale)) * 0.25;
            decode_row(scale, IQ2_XS_GRID[code & 511].to_le_bytes(), SIGNS[code >> 9], values);
        }
    }
}

/// The codebook for the search.
struct Grid;

impl Codebook<8, 512> for Grid {
    const TOP: f32 = 43.0;
    fn places() -> &'static Places<8, 512> {
        static PLACES: Places<8, 512> = octet_places(&IQ2_XS_GRID);
        &PLACES
    }
}

/// Scales, rows and signs of least squared error that the search finds.
pub(super) fn encode(values: &[f32; 256], weights: &[f32; 256]) -> Option<Iq2Xs> {
    let fit = Coded::<16>::fit::<Whole<512, Grid>>(Samples { values, weights }, 0.25);
    let qs = fit
        .choices
        .map(|choice| (choice.rows[0] | u16::from(choice.signs & 127) << 9).to_le_bytes());
    let scales = std::array::from_fn(|pair| fit.scales[2 * pair] | fit.scales[2 * pair + 1] << 4);
    fit.d.is_finite().then_some(Iq2Xs { d: fit.d, qs, scales })
}
