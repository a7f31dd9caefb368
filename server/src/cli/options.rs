//! Flags that several commands share.

use crate::backend::{BackendChoice, BackendKind};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use forge_core::engine::{EngineOptions, SamplingParams};
use forge_core::kv::KvType;
use forge_core::weights::GenerationDefaults;

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
    /// Sequences that the cache has room for
    #[arg(long, default_value_t = 1, value_name = "N")]
    slots: usize,
    /// Threads of the processor [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
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

    /// Sizes of the engine, `context` tokens long unless the user says otherwise.
    pub(crate) fn engine(&self, context: Option<usize>) -> EngineOptions {
        EngineOptions {
            context: self.ctx.or(context),
            slots: self.slots,
            kv_type: self.kv_type,
            prefix_cache: false,
            ..EngineOptions::default()
        }
    }
}
