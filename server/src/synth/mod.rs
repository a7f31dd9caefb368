//! Models with random weights in the shapes of real ones, so that speed can be measured without a
//! download.

mod shape;
mod tile;
mod vocabulary;

pub(crate) use shape::Shape;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use forge_core::config::ModelConfig;
use forge_core::weights::gguf::{GgufValue, GgufWriter};
use forge_core::weights::quant::StorageType;
use forge_core::weights::{GgufTensor, gguf_tensors};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use tile::{Tile, Tiles};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How the matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// Everything f16.
    F16,
    /// Everything q8_0.
    #[value(name = "q8_0")]
    Q8_0,
    /// q4_k, with the embedding, head and half of the sensitive matrices in q6_k.
    #[value(name = "q4_k")]
    Q4K,
    /// iq2_xxs, with the embedding in q4_k, the head in q5_k and values in q4_k.
    #[value(name = "iq2_xxs")]
    Iq2Xxs,
}

/// What to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synth {
    /// Sizes.
    pub(crate) shape: Shape,
    /// Storage types.
    pub(crate) mix: Mix,
    /// With the draft block.
    pub(crate) mtp: bool,
    /// Main layers; `None` = all.
    pub(crate) layers: Option<usize>,
    /// Tokens; `None` = as in the real models.
    pub(crate) vocabulary: Option<usize>,
    /// Seed of all random choices.
    pub(crate) seed: u64,
}

/// A tensor with its storage type.
struct Planned {
    tensor: GgufTensor,
    storage: StorageType,
}

impl Synth {
    /// Writes the file and returns its bytes of weights. `progress` gets the bytes written so far
    /// and those of all tensors after each tensor, and says whether to stop, which leaves nothing.
    ///
    /// # Errors
    /// If sizes make no model, the file cannot be written, or `progress` stops it.
    pub(crate) fn write(
        &self,
        path: &Path,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64> {
        let config = self.shape.config(self.layers, self.vocabulary, self.mtp)?;
        let planned: Vec<Planned> = gguf_tensors(&config)
            .into_iter()
            .map(|tensor| Planned { storage: self.mix.storage(&tensor, &config), tensor })
            .collect();
        let plan: Vec<_> = planned
            .iter()
            .map(|Planned { tensor, storage }| {
                (tensor.name.clone(), *storage, tensor.shape.clone())
            })
            .collect();
        let bytes = |storage: StorageType, shape: &[usize]| {
            storage.tensor_bytes(shape).with_context(|| format!("{storage}{shape:?} has no size"))
        };
        let mut total = 0;
        for (_, storage, shape) in &plan {
            total += bytes(*storage, shape)? as u64;
        }
        let mut writer = GgufWriter::create(path, &self.metadata(&config)?, &plan)?;
        let mut tiles = Tiles::new(self.seed);
        let mut done = 0;
        for Planned { tensor, storage } in &planned {
            writer.begin(&tensor.name)?;
            match vector_values(tensor, self.seed) {
                Some(values) => {
                    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                    writer.write(&bytes)?;
                }
                None => {
                    let tile = tiles.get(*storage, deviation(tensor, &config))?;
                    write_rows(&mut writer, tile, tensor, self.seed)?;
                }
            }
            done += bytes(*storage, &tensor.shape)? as u64;
            if progress(done, total) {
                bail!("{}: interrupted", path.display());
            }
        }
        writer.finish()?;
        Ok(total)
    }

    fn metadata(&self, config: &ModelConfig) -> Result<Vec<(String, GgufValue)>> {
        let mut metadata = config.to_gguf()?;
        let text = |text: String| GgufValue::String(text);
        let (shape, mix) = (name_of(&self.shape), name_of(&self.mix));
        metadata.extend([
            ("general.type".to_owned(), text("model".to_owned())),
            ("general.name".to_owned(), text(format!("random {shape} {mix} seed {}", self.seed))),
            ("general.quantization_version".to_owned(), GgufValue::U32(2)),
            ("general.file_type".to_owned(), GgufValue::U32(self.mix.file_type())),
        ]);
        metadata.extend(vocabulary::keys(config.vocab_size)?);
        Ok(metadata)
    }
}

/// Name of a choice on the command line.
pub(crate) fn name_of(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Mix {
    /// `general.file_type`, a number that other engines show as a name.
    fn file_type(self) -> u32 {
        match self {
            Self::F16 => 1,
            Self::Q8_0 => 7,
            Self::Q4K => 15,
            Self::Iq2Xxs => 19,
        }
    }

    /// Storage type of a tensor, as the usual mixes of this name have it.
    fn storage(self, tensor: &GgufTensor, config: &ModelConfig) -> StorageType {
        let name = tensor.canonical.as_str();
        let last = name.rsplit('.').next().unwrap_or(name);
        let small = tensor.shape.len() < 2 || matches!(last, "conv" | "router");
        if small {
            return StorageType::F32;
        }
        let gates = matches!(last, "a" | "b" | "fc");
        match self {
            Self::F16 => StorageType::F16,
            Self::Q8_0 => StorageType::Q8_0,
            Self::Q4K | Self::Iq2Xxs if gates => StorageType::Q8_0,
            Self::Q4K => match last {
                "embed" | "lm_head" => StorageType::Q6_K,
                "v" | "down" if favoured(name, config.layers.len()) => StorageType::Q6_K,
                _ => StorageType::Q4_K,
            },
            Self::Iq2Xxs => match last {
                "lm_head" => StorageType::Q5_K,
                // A tied embedding is the head as well.
                "embed" if config.tied_embeddings => StorageType::Q5_K,
                "embed" | "v" => StorageType::Q4_K,
                _ => StorageType::Iq2Xxs,
            },
        }
    }
}

/// The layers whose sensitive matrices get more bits: the first and last eighth, and every third.
fn favoured(name: &str, layers: usize) -> bool {
    let index = name.strip_prefix("layers.").and_then(|rest| rest.split('.').next());
    let Some(index) = index.and_then(|index| index.parse::<usize>().ok()) else { return true };
    let eighth = layers / 8;
    index < eighth || index >= 7 * layers / 8 || (index - eighth) % 3 == 2
}

/// Standard deviation of a matrix: outputs as large as normed inputs, and what a layer adds to the
/// residual stream the smaller the more layers there are.
fn deviation(tensor: &GgufTensor, config: &ModelConfig) -> f32 {
    let columns = tensor.shape.last().copied().unwrap_or(1).max(1) as f32;
    let last = tensor.canonical.rsplit('.').next().unwrap_or_default();
    let layers = config.layers.len().max(1) as f32;
    let share = if matches!(last, "o" | "out" | "down") { (2.0 * layers).sqrt() } else { 1.0 };
    1.0 / (columns.sqrt() * share)
}

/// Values of the small f32 tensors; `None` for a matrix.
fn vector_values(tensor: &GgufTensor, seed: u64) -> Option<Vec<f32>> {
    let last = tensor.canonical.rsplit('.').next().unwrap_or_default();
    let columns = tensor.shape.last().copied().unwrap_or(1) as f32;
    let spread = (3.0 / columns).sqrt();
    // A range to draw from, and what becomes of the value drawn.
    let (range, change): (_, fn(f32) -> f32) = match last {
        // Decays between 1 and 7 per unit of time.
        "neg_a" => (0.0..2.0, |v| -v.exp()),
        // softplus(dt_bias) between 0.001 and 0.1, as these layers are initialised.
        "dt_bias" => (0.001f32.ln()..0.1f32.ln(), |v| v.exp().exp_m1().ln()),
        "conv" => (-0.5..0.5, |v| v),
        "router" | "shared_gate" => (-spread..spread, |v| v),
        _ if tensor.shape.len() < 2 => (0.9..1.1, |v| v),
        _ => return None,
    };
    let mut random = ChaCha8Rng::seed_from_u64(xxh3_64_with_seed(tensor.name.as_bytes(), seed));
    let count: usize = tensor.shape.iter().product();
    Some((0..count).map(|_| change(random.random_range(range.clone()))).collect())
}

/// Writes a matrix row by row, each row from its own place in the tile.
fn write_rows(writer: &mut GgufWriter, tile: &Tile, tensor: &GgufTensor, seed: u64) -> Result<()> {
    let Some((&columns, outer)) = tensor.shape.split_last() else {
        bail!("{} has no dimensions", tensor.name)
    };
    let rows: usize = outer.iter().product();
    let hash = xxh3_64_with_seed(tensor.name.as_bytes(), seed);
    for row in 0..rows {
        writer.write(tile.row(hash, row, columns)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
