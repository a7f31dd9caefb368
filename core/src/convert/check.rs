//! How far a written tensor may be from its source.

use super::view::View;
use crate::error::Result;
use crate::weights::quant::StorageType;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Fewest values whose error is looked at together.
const BLOCK_VALUES: usize = 32;
/// Blocks smaller than this share of their row are measured by it: their scale may not be a number
/// that the type has.
const SMALL: f64 = 1e-3;
/// Typical errors that a whole tensor may have.
const TENSOR_FACTOR: f64 = 5.0;
/// Largest error of a tensor in any type: values in the wrong places have 1.4.
const LARGEST: f64 = 0.9;
/// Typical errors that a block may have in a type whose error does not depend on the values.
const BLOCK_FACTOR: f64 = 8.0;

/// Differences to the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// Root of the mean squared difference over that of the mean square; 0 = exact.
    pub relative_rms: f64,
    /// The same of the block where it is largest.
    pub worst_block: f64,
}

impl Deviation {
    /// True if a tensor of this type may deviate so much. The limits find bytes in the wrong place
    /// and values that the type cannot hold; they are no statement about quality.
    pub fn within(self, storage: StorageType) -> bool {
        let typical = typical_error(storage);
        let block = if typical > 0.01 { 1.0 } else { BLOCK_FACTOR * typical };
        // A comparison that is true of no NaN.
        self.relative_rms <= (TENSOR_FACTOR * typical).min(LARGEST) && self.worst_block <= block
    }
}

/// Relative error of the quantisers on values of a normal distribution.
pub(super) fn typical_error(storage: StorageType) -> f64 {
    match storage {
        StorageType::F32 => 0.0,
        StorageType::F16 => 0.0003,
        StorageType::Bf16 => 0.0017,
        StorageType::Q8_0 => 0.0053,
        StorageType::Q6_K => 0.017,
        StorageType::Q5_1 | StorageType::Q5_K => 0.034,
        StorageType::Q5_0 => 0.040,
        StorageType::Q4_1 | StorageType::Q4_K => 0.069,
        StorageType::Iq4Nl | StorageType::Iq4Xs => 0.074,
        StorageType::Q4_0 => 0.080,
        StorageType::Mxfp4 => 0.112,
        StorageType::Q3_K => 0.143,
        StorageType::Iq3Xxs => 0.176,
        StorageType::Q2_K => 0.260,
        StorageType::Iq2Xs => 0.285,
        StorageType::Iq2Xxs => 0.327,
    }
}

/// Sums over rows that were compared so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Differences {
    error: f64,
    square: f64,
    worst_block: f64,
    /// Bytes of the same type that are not the same, or lengths that do not fit.
    broken: bool,
}

impl Differences {
    pub(super) fn merge(self, other: Self) -> Self {
        Self {
            error: self.error + other.error,
            square: self.square + other.square,
            worst_block: self.worst_block.max(other.worst_block),
            broken: self.broken || other.broken,
        }
    }

    pub(super) fn deviation(self) -> Deviation {
        let relative = ratio(self.error, self.square);
        if self.broken || !relative.is_finite() {
            return Deviation { relative_rms: f64::INFINITY, worst_block: f64::INFINITY };
        }
        Deviation { relative_rms: relative, worst_block: self.worst_block }
    }
}

/// Compares rows of a view with their bytes in the new file.
///
/// # Errors
/// Those of dequantising.
pub(super) fn compare(
    view: &View,
    storage: StorageType,
    rows: Range<usize>,
    written: &[u8],
) -> Result<Differences> {
    let columns = view.row_values();
    let row_bytes = storage.row_bytes(columns).unwrap_or(0).max(1);
    if written.len() != row_bytes * rows.len() {
        return Ok(Differences { broken: true, ..Differences::default() });
    }
    let first = rows.start;
    written
        .par_chunks(row_bytes)
        .enumerate()
        .map(|(at, bytes)| {
            let row = first + at;
            if view.copies(storage) {
                let broken = *bytes != *view.row(row);
                return Ok(Differences { broken, ..Differences::default() });
            }
            let old = view.values(row..row + 1)?;
            let mut new = vec![0.0; columns];
            storage.dequantize(bytes, &mut new)?;
            Ok(row_differences(&old, &new, storage.block().0.max(BLOCK_VALUES)))
        })
        .try_reduce(Differences::default, |a, b| Ok(a.merge(b)))
}

fn row_differences(old: &[f32], new: &[f32], block: usize) -> Differences {
    let mut all = Differences::default();
    let mut blocks = Vec::with_capacity(old.len().div_ceil(block));
    for (old, new) in old.chunks(block).zip(new.chunks(block)) {
        let error: f64 = old.iter().zip(new).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let square: f64 = old.iter().map(|v| f64::from(*v).powi(2)).sum();
        all.error += error;
        all.square += square;
        blocks.push((error, square));
    }
    let small = SMALL * SMALL * all.square / blocks.len().max(1) as f64;
    for (error, square) in blocks {
        all.worst_block = all.worst_block.max(ratio(error, square.max(small)));
    }
    all.broken = !all.error.is_finite();
    all
}

/// `sqrt(error / square)`, where no error of nothing is none.
fn ratio(error: f64, square: f64) -> f64 {
    if error == 0.0 { 0.0 } else { (error / square).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(old: &[f32], new: &[f32]) -> Deviation {
        row_differences(old, new, BLOCK_VALUES).deviation()
    }

    #[test]
    fn deviations_are_relative() {
        assert_eq!(of(&[2.0, -4.0], &[2.0, -4.0]), Deviation::default());
        let one = of(&[3.0, -4.0], &[3.0, -3.0]);
        assert!((one.relative_rms - 0.2).abs() < 1e-12 && one.worst_block == one.relative_rms);
        assert_eq!(of(&[0.0; 4], &[0.0; 4]), Deviation::default());
        assert_eq!(of(&[0.0], &[1.0]).relative_rms, f64::INFINITY);
        assert_eq!(of(&[1.0], &[f32::NAN]).relative_rms, f64::INFINITY);
        let old: Vec<f32> = (0..64).map(|at| if at < 32 { 1.0 } else { 0.01 }).collect();
        let new: Vec<f32> = old.iter().map(|v| if *v < 1.0 { 0.0 } else { *v }).collect();
        assert_eq!(of(&old, &new).worst_block, 1.0);
        assert!(of(&old, &new).relative_rms < 0.02);
    }

    #[test]
    fn limits_tell_noise_from_nonsense() {
        for storage in StorageType::ALL {
            let typical = typical_error(storage);
            let deviation =
                |rms: f64, block: f64| Deviation { relative_rms: rms, worst_block: block };
            assert!(deviation(typical, typical).within(storage), "{storage}");
            // Values of the right size in the wrong places.
            assert!(!deviation(1.41, 1.41).within(storage), "{storage}");
            assert!(!deviation(f64::NAN, 0.0).within(storage), "{storage}");
        }
    }
}
