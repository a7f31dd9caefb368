//! Random blocks that all matrices of a type and scale are cut from: a file of 27 GB needs random
//! bits for megabytes only, and rows still differ.

use anyhow::{Context, Result, bail};
use forge_core::weights::quant::StorageType;
use half::f16;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::collections::HashMap;

/// Units of a tile: a prime above the rows of the largest matrix, so that no two rows of a matrix
/// start at the same unit.
pub(super) const UNITS: usize = 262_139;
/// Values of a unit where a block is one value.
const PLAIN_UNIT: usize = 64;
/// Longest row in values; the tile repeats its beginning by so much.
const LONGEST_ROW: usize = 17_408;
/// Units that one task fills.
const TASK_UNITS: usize = 4096;

/// Tiles by storage type and scale, made when they are first needed.
pub(super) struct Tiles {
    seed: u64,
    made: HashMap<(StorageType, u32), Tile>,
}

impl Tiles {
    /// No tile yet.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, made: HashMap::new() }
    }

    /// The tile of values with this standard deviation.
    ///
    /// # Errors
    /// For a type that has no random blocks here.
    pub(super) fn get(&mut self, storage: StorageType, deviation: f32) -> Result<&Tile> {
        let key = (storage, deviation.to_bits());
        if !self.made.contains_key(&key) {
            let tile = Tile::random(storage, deviation, self.seed)?;
            self.made.insert(key, tile);
        }
        self.made.get(&key).context("the tile was just made")
    }
}

/// Random blocks.
pub(super) struct Tile {
    bytes: Vec<u8>,
    unit_values: usize,
    unit_bytes: usize,
}

impl Tile {
    fn random(storage: StorageType, deviation: f32, seed: u64) -> Result<Self> {
        let (block_values, block_bytes) = storage.block();
        let blocks = if block_values == 1 { PLAIN_UNIT } else { 1 };
        let (unit_values, unit_bytes) = (blocks * block_values, blocks * block_bytes);
        let mut bytes = vec![0; UNITS * unit_bytes];
        let tasks = bytes.par_chunks_mut(TASK_UNITS * unit_bytes).enumerate();
        tasks.try_for_each(|(task, chunk)| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream((task as u64) << 8 | u64::from(storage.gguf_id()));
            fill(storage, chunk, deviation, &mut random)
        })?;
        bytes.extend_from_within(..LONGEST_ROW.div_ceil(unit_values) * unit_bytes);
        Ok(Self { bytes, unit_values, unit_bytes })
    }

    /// Bytes of row `row` of a matrix whose name has the hash `hash`.
    ///
    /// # Errors
    /// For a row that is too long or no whole number of units.
    pub(super) fn row(&self, hash: u64, row: usize, columns: usize) -> Result<&[u8]> {
        if !columns.is_multiple_of(self.unit_values) {
            bail!("rows of {columns} values are not units of {}", self.unit_values);
        }
        let units = UNITS as u64;
        let (first, step) = (hash % units, 1 + (hash >> 32) % (units - 1));
        let start = ((first + row as u64 % units * step) % units) as usize * self.unit_bytes;
        let bytes = columns / self.unit_values * self.unit_bytes;
        self.bytes.get(start..start + bytes).with_context(|| format!("a row of {columns} values"))
    }
}

/// Fills whole blocks with random values of this standard deviation and mean 0.
fn fill(
    storage: StorageType,
    chunk: &mut [u8],
    deviation: f32,
    random: &mut ChaCha8Rng,
) -> Result<()> {
    let (block_values, block_bytes) = storage.block();
    if matches!(storage, StorageType::F16 | StorageType::Q8_0) {
        let count = chunk.len() / block_bytes * block_values;
        let values: Vec<f32> = (0..count).map(|_| deviation * normal(random)).collect();
        let mut encoded = Vec::with_capacity(chunk.len());
        storage.quantize(&values, &mut encoded)?;
        chunk.copy_from_slice(&encoded);
        return Ok(());
    }
    // The rest have no quantiser: any bits are a block, and the value is linear in the scales.
    let scales = scales(storage)?;
    random.fill_bytes(chunk);
    set_scales(chunk, block_bytes, scales, 1.0);
    let sample = chunk.len().min(256 * block_bytes);
    let mut values = vec![0.0; sample / block_bytes * block_values];
    storage.dequantize(chunk.get(..sample).unwrap_or_default(), &mut values)?;
    let square: f64 = values.iter().map(|v| f64::from(*v).powi(2)).sum();
    let found = (square / values.len().max(1) as f64).sqrt() as f32;
    set_scales(chunk, block_bytes, scales, deviation / found);
    Ok(())
}

/// Where a block has its f16 scales, and what they are before scaling: a minimum scale balances
/// the mean of its values.
fn scales(storage: StorageType) -> Result<&'static [(usize, f32)]> {
    Ok(match storage {
        StorageType::Q4_K => &[(0, 1.0), (2, 7.5)],
        StorageType::Q5_K => &[(0, 1.0), (2, 15.5)],
        StorageType::Q6_K => &[(208, 1.0)],
        StorageType::Iq2Xxs => &[(0, 1.0)],
        other => bail!("{other} has no random blocks"),
    })
}

fn set_scales(chunk: &mut [u8], block_bytes: usize, scales: &[(usize, f32)], factor: f32) {
    for block in chunk.chunks_exact_mut(block_bytes) {
        for &(at, scale) in scales {
            if let Some(field) = block.get_mut(at..at + 2) {
                field.copy_from_slice(&f16::from_f32(scale * factor).to_le_bytes());
            }
        }
    }
}

/// A standard normal value (Box and Muller, 1958).
fn normal(random: &mut ChaCha8Rng) -> f32 {
    let radius = (-2.0 * (1.0 - random.random::<f32>()).ln()).sqrt();
    radius * (std::f32::consts::TAU * random.random::<f32>()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_deviation_asked_for_and_no_mean() {
        for storage in [
            StorageType::F16,
            StorageType::Q8_0,
            StorageType::Q4_K,
            StorageType::Q5_K,
            StorageType::Q6_K,
            StorageType::Iq2Xxs,
        ] {
            let (block_values, block_bytes) = storage.block();
            let blocks = 65_536 / block_values;
            let mut chunk = vec![0; blocks * block_bytes];
            fill(storage, &mut chunk, 0.02, &mut ChaCha8Rng::seed_from_u64(5)).unwrap();
            let mut values = vec![0.0; blocks * block_values];
            storage.dequantize(&chunk, &mut values).unwrap();
            let count = values.len() as f32;
            let mean = values.iter().sum::<f32>() / count;
            let deviation = (values.iter().map(|v| v * v).sum::<f32>() / count).sqrt();
            assert!((deviation / 0.02 - 1.0).abs() < 0.03, "{storage}: {deviation}");
            assert!(mean.abs() < 0.001, "{storage}: {mean}");
        }
    }

    #[test]
    fn the_number_of_units_is_prime() {
        assert!((2..512).all(|divisor| !UNITS.is_multiple_of(divisor)));
    }
}
