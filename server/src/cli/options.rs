//! Flags that several commands share.

use crate::backend::{BackendChoice, BackendKind};
use crate::machine;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use forge_core::engine::{EngineOptions, SamplingParams};
use forge_core::kv::KvType;
use forge_core::weights::GenerationDefaults;
use std::path::PathBuf;

/// A choice that a template may leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// How tokens are chosen. What is not given comes from the model's own defaults.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingFlags {
    /// Temperature; 0 = always the most likely token [default: the model's, else 0]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Choose among the K most likely tokens; 0 = all [default: the model's, else 0]
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Choose among the fewest tokens with this probability [default: the model's, else 1]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Drop tokens below this share of the best one's probability [default: the model's, else 0]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Divide the logits of generated tokens; 1 = off [default: the model's, else 1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// Subtract from the logits of generated tokens [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtract from the logits of generated tokens, once per occurrence [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Seed of the random choices [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingFlags {
    /// The parameters over a model's defaults.
    pub(crate) fn params(&self, defaults: &GenerationDefaults) -> SamplingParams {
        let base = SamplingParams::from_defaults(defaults);
        SamplingParams {
            temperature: self.temp.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repeat_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            seed: self.seed,
            ..base
        }
    }
}

/// Where and how large the model runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineFlags {
    /// Where to run; auto = the first of cuda, wgpu, cpu that works
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, value_name = "BACKEND")]
    backend: BackendKind,
    /// Number of the GPU, for wgpu also a part of its name [default: the first or best]
    #[arg(long, visible_alias = "adapter", value_name = "GPU")]
    device: Option<String>,
    /// Longest sequence in tokens, prompt and reply together [default: what the command needs]
    #[arg(long, value_name = "TOKENS")]
    ctx: Option<usize>,
    /// Storage of keys and values
    #[arg(long, value_parser = kv_type_parser(), default_value = "f16", value_name = "TYPE")]
    kv_type: KvType,
    /// Sequences at once [default: 4 for serve, else 1]
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Threads of the processor [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// What is kept of earlier requests, and where.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Prefix cache")]
pub(crate) struct CacheFlags {
    /// Compute every prompt from its first token
    #[arg(long)]
    no_prefix_cache: bool,
    /// Device memory for keys, values and saved states, as in 6GiB [default: what the slots need, and most of the rest up to 8GiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    cache_vram: Option<u64>,
    /// Main memory for what leaves the device; 0 = none [default: a quarter of what is free, at most 8GiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    cache_ram: Option<u64>,
    /// Keep saved states in this folder too, so that they survive a restart
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<PathBuf>,
    /// Most bytes in that folder
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "32GiB")]
    cache_disk: u64,
}

/// Most main memory that the cache takes unasked.
const DEFAULT_CACHE_RAM: u64 = 8 << 30;

impl CacheFlags {
    /// The engine's options with this cache.
    pub(crate) fn over(&self, options: EngineOptions) -> EngineOptions {
        let quarter = || machine::memory().map_or(0, |memory| memory.available / 4);
        EngineOptions {
            prefix_cache: !self.no_prefix_cache,
            cache_bytes: self.cache_vram,
            host_cache_bytes: self.cache_ram.unwrap_or_else(|| quarter().min(DEFAULT_CACHE_RAM)),
            ..options
        }
    }

    /// Folder and size of the disk tier.
    pub(crate) fn disk(&self) -> Option<(PathBuf, u64)> {
        let folder = self.cache_dir.clone().filter(|_| !self.no_prefix_cache)?;
        Some((folder, self.cache_disk))
    }
}

/// Bytes with an optional unit: `512MiB`, `6GiB`, `8GB`, `1048576`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("{text} is not a number of bytes"))?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => f64::from(1 << 20),
        "g" | "gib" => f64::from(1 << 30),
        "t" | "tib" => f64::from(1 << 30) * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        unit => return Err(format!("{unit} is not a unit: use KiB, MiB, GiB, KB, MB or GB")),
    };
    Ok((number * factor) as u64)
}

pub(super) fn kv_type_parser() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(["f16", "bf16", "q8_0", "fp8", "f32"])
        .try_map(|name| name.parse::<KvType>())
}

impl EngineFlags {
    /// The backend asked for. Sets the number of threads as well, which must happen first.
    ///
    /// # Errors
    /// If the threads cannot be started.
    pub(crate) fn backend(&self) -> anyhow::Result<BackendChoice> {
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        }
        Ok(BackendChoice { kind: self.backend, device: self.device.clone() })
    }

    /// Sizes of the engine, `context` tokens long and of `slots` slots unless the user says otherwise.
    pub(crate) fn engine(&self, context: Option<usize>, slots: usize) -> EngineOptions {
        EngineOptions {
            context: self.ctx.or(context),
            slots: self.slots.unwrap_or(slots),
            kv_type: self.kv_type,
            prefix_cache: false,
            ..EngineOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_take_units() {
        assert_eq!(parse_bytes("6GiB"), Ok(6 << 30));
        assert_eq!(parse_bytes("1.5 MB"), Ok(1_500_000));
        assert_eq!(parse_bytes("0"), Ok(0));
        for wrong in ["", "GiB", "5 lightyears", "-1", "1e9"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
