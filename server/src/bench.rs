//! Measurements of an engine.

use crate::output::size;
use crate::session;
use anyhow::{Context, Result, bail};
use forge_core::config::{FeedForwardConfig, ModelConfig};
use forge_core::engine::{Engine, Event, Request, SamplingParams, Timing};
use forge_core::kv::{BLOCK_TOKENS, KvLayout, KvType};
use forge_core::profile::OpTotal;
use forge_core::weights::Checkpoint;
use forge_core::{Backend, SequenceId, TokenId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use xxhash_rust::xxh3::Xxh3;

/// Bytes at the start of each tensor that the fingerprint covers.
const FINGERPRINT_BYTES: usize = 4096;
/// Tokens of the prompt and of the answer of the sanity check.
const SANITY: (usize, usize) = (32, 16);

/// What to measure.
pub(crate) struct Suite {
    /// Prompt lengths.
    pub(crate) prompt_tokens: Vec<usize>,
    /// Tokens before decoding begins.
    pub(crate) depths: Vec<usize>,
    /// Tokens to decode.
    pub(crate) tokens: usize,
    /// Time ops as well.
    pub(crate) profile: bool,
}

/// Speed of a prompt.
#[derive(Debug, Serialize)]
pub(crate) struct Prefill {
    tokens: usize,
    seconds: f64,
    tokens_per_second: f64,
}

/// Speed of decoding.
#[derive(Debug, Serialize)]
pub(crate) struct Decode {
    depth: usize,
    tokens: usize,
    seconds: f64,
    tokens_per_second: f64,
    /// Weights, keys and values, and states that a step reads.
    bytes_per_step: u64,
    bytes_per_second: f64,
    /// Of the device's read bandwidth; absent if that is unknown.
    bandwidth_share: Option<f64>,
}

/// Whether the answers of the model measured are worth anything.
#[derive(Debug, Serialize)]
pub(crate) struct Sanity {
    /// The same prompt gave the same tokens twice.
    repeatable: bool,
    /// Different tokens among those generated.
    distinct: usize,
    tokens: Vec<u32>,
}

/// All figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    forge: &'static str,
    model: String,
    /// XXH3-64 over names, types, shapes and the first bytes of all tensors.
    fingerprint: String,
    weight_bytes: u64,
    backend: &'static str,
    device: String,
    kv_type: KvType,
    prefill: Vec<Prefill>,
    decode: Vec<Decode>,
    sanity: Sanity,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
}

/// Time by op, longest first.
#[derive(Debug, Serialize)]
pub(crate) struct Profile {
    /// Of the pass over the beginning of a prompt.
    prefill: Vec<OpTotal>,
    /// Of a decode step.
    decode: Vec<OpTotal>,
}

impl Suite {
    /// Longest sequence that the suite needs.
    pub(crate) fn context(&self) -> usize {
        let longest = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
        let prompts = longest(&self.prompt_tokens) + 1;
        let depths = longest(&self.depths) + self.tokens + 1;
        prompts.max(depths).max(SANITY.0 + SANITY.1 + 1)
    }

    /// Runs everything.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn run<B: Backend>(
        &self,
        engine: &mut Engine<B>,
        checkpoint: &Checkpoint,
    ) -> Result<Report> {
        // The first passes record programs and touch memory; they also tell whether it works.
        let sanity = sanity(engine)?;
        let vocabulary = engine.model().config.vocab_size;
        let rows = engine.plan().max_rows;
        let warm_up = rows.min(self.context() - self.tokens - 1).max(1);
        answer(engine, random_tokens(vocabulary, warm_up), 2)?;
        let mut prefill = Vec::new();
        for &tokens in &self.prompt_tokens {
            let (_, timing) = answer(engine, random_tokens(vocabulary, tokens), 1)?;
            prefill.push(Prefill {
                tokens,
                seconds: timing.prefill.as_secs_f64(),
                tokens_per_second: timing.prefill_rate(),
            });
        }
        let bandwidth = engine.backend().measure_bandwidth()?;
        let mut decode = Vec::new();
        for &depth in &self.depths {
            // A sequence has at least one token.
            let prompt = random_tokens(vocabulary, depth.max(1));
            let (_, timing) = answer(engine, prompt, self.tokens)?;
            decode.push(self.decode(engine, checkpoint, depth, bandwidth, &timing));
        }
        let profile = if self.profile { Some(self.profile(engine)?) } else { None };
        let info = engine.backend().info();
        Ok(Report {
            forge: env!("CARGO_PKG_VERSION"),
            model: checkpoint.name.clone(),
            fingerprint: fingerprint(checkpoint),
            weight_bytes: session::weight_bytes(checkpoint),
            backend: info.backend,
            device: info.name.clone(),
            kv_type: engine.plan().kv_type,
            prefill,
            decode,
            sanity,
            profile,
        })
    }

    /// Times the ops of the first pass of a long prompt and of a step behind it.
    fn profile<B: Backend>(&self, engine: &mut Engine<B>) -> Result<Profile> {
        let vocabulary = engine.model().config.vocab_size;
        let depth = self.depths.last().copied().unwrap_or(0).max(engine.plan().max_rows);
        let prompt = random_tokens(vocabulary, depth.min(self.context() - 3).max(1));
        let id = submit(engine, prompt, 3)?;
        let (_, prefill) = engine.profile_step()?;
        let begun = |events: &[Event]| events.iter().any(|e| matches!(e, Event::Token { .. }));
        while !engine.is_idle() && !begun(&engine.step()?) {}
        let (_, decode) = engine.profile_step()?;
        engine.cancel(id)?;
        Ok(Profile { prefill, decode })
    }

    fn decode<B: Backend>(
        &self,
        engine: &Engine<B>,
        checkpoint: &Checkpoint,
        depth: usize,
        bandwidth: f64,
        timing: &Timing,
    ) -> Decode {
        let config = &engine.model().config;
        let middle = (depth + self.tokens / 2) as u64;
        let bytes_per_step = step_weight_bytes(checkpoint)
            + kv_token_bytes(config, engine.plan().kv_type) * middle
            + config.state_bytes() as u64;
        let bytes_per_second = bytes_per_step as f64 * timing.decode_rate();
        Decode {
            depth,
            tokens: timing.generated_tokens,
            seconds: timing.decode.as_secs_f64(),
            tokens_per_second: timing.decode_rate(),
            bytes_per_step,
            bytes_per_second,
            bandwidth_share: (bandwidth > 0.0).then(|| bytes_per_second / bandwidth),
        }
    }
}

/// Queues a greedy request.
fn submit<B: Backend>(
    engine: &mut Engine<B>,
    prompt: Vec<TokenId>,
    max_tokens: usize,
) -> Result<SequenceId> {
    Ok(engine.submit(Request {
        prompt,
        sampling: SamplingParams::default(),
        max_tokens: Some(max_tokens),
        stop_tokens: Vec::new(),
        ..Request::default()
    })?)
}

/// Runs a greedy request to its end.
fn answer<B: Backend>(
    engine: &mut Engine<B>,
    prompt: Vec<TokenId>,
    max_tokens: usize,
) -> Result<(Vec<TokenId>, Timing)> {
    submit(engine, prompt, max_tokens)?;
    let mut tokens = Vec::new();
    while !engine.is_idle() {
        for event in engine.step()? {
            match event {
                Event::Token { token, .. } => tokens.push(token),
                Event::Finished { timing, .. } => return Ok((tokens, timing)),
                Event::Failed { error, .. } => return Err(error.into()),
                Event::Prefill { .. } => {}
            }
        }
    }
    bail!("the engine went idle before the answer was complete")
}

/// The same tokens every time, none of the control tokens at the end of the vocabulary.
fn random_tokens(vocabulary: usize, count: usize) -> Vec<TokenId> {
    let plain = (vocabulary - vocabulary / 8).max(1) as u32;
    let mut random = ChaCha8Rng::seed_from_u64(count as u64);
    (0..count).map(|_| TokenId(random.random_range(0..plain))).collect()
}

fn sanity<B: Backend>(engine: &mut Engine<B>) -> Result<Sanity> {
    let (prompt, tokens) = SANITY;
    let vocabulary = engine.model().config.vocab_size;
    let mut run = || answer(engine, random_tokens(vocabulary, prompt), tokens);
    let (first, _) = run().context("sanity check")?;
    let (second, _) = run().context("sanity check")?;
    Ok(Sanity {
        repeatable: first == second,
        distinct: first.iter().collect::<BTreeSet<_>>().len(),
        tokens: first.iter().map(|token| token.0).collect(),
    })
}

/// Bytes of weights that a step of one token reads: the head but not the embedding, and of the
/// experts those that are used.
fn step_weight_bytes(checkpoint: &Checkpoint) -> u64 {
    let config = &checkpoint.config;
    let read = |name: &str, bytes: u64| match config.feed_forward {
        _ if name.starts_with("mtp.") => 0,
        _ if name == "embed" && !config.tied_embeddings => 0,
        FeedForwardConfig::Moe { experts, top_k, .. } if name.contains(".moe.experts.") => {
            bytes * top_k as u64 / experts.max(1) as u64
        }
        _ => bytes,
    };
    checkpoint.tensors.iter().map(|(name, tensor)| read(name, tensor.data.len() as u64)).sum()
}

/// Bytes of keys and values of one token in all layers.
fn kv_token_bytes(config: &ModelConfig, kv_type: KvType) -> u64 {
    let attention = &config.attention;
    let layout = KvLayout { kv_type, kv_heads: attention.kv_heads, head_dim: attention.head_dim };
    (layout.block_bytes() / BLOCK_TOKENS * config.attention_layers()) as u64
}

fn fingerprint(checkpoint: &Checkpoint) -> String {
    let mut hash = Xxh3::new();
    for (name, tensor) in &checkpoint.tensors {
        hash.update(format!("{name} {} {:?}\n", tensor.storage, tensor.shape).as_bytes());
        let bytes = tensor.data.as_slice();
        hash.update(&bytes[..bytes.len().min(FINGERPRINT_BYTES)]);
    }
    format!("{:016x}", hash.digest())
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ({}, fingerprint {}) on {} ({}), kv {:?}, forge {}",
            self.model,
            size(self.weight_bytes),
            self.fingerprint,
            self.backend,
            self.device,
            self.kv_type,
            self.forge
        )?;
        writeln!(f, "\n{:>10} {:>10} {:>12}", "prompt", "seconds", "prefill t/s")?;
        for row in &self.prefill {
            writeln!(
                f,
                "{:>10} {:>10.3} {:>12.1}",
                row.tokens, row.seconds, row.tokens_per_second
            )?;
        }
        let heads = ["depth", "ms/token", "decode t/s", "read/step", "GB/s", "of device"];
        let [depth, time, rate, bytes, speed, share] = heads;
        writeln!(f, "\n{depth:>10} {time:>10} {rate:>12} {bytes:>12} {speed:>9} {share:>10}")?;
        for row in &self.decode {
            let share =
                row.bandwidth_share.map_or("-".to_owned(), |s| format!("{:.1} %", 100.0 * s));
            writeln!(
                f,
                "{:>10} {:>10.3} {:>12.1} {:>12} {:>9.2} {share:>10}",
                row.depth,
                1e3 / row.tokens_per_second,
                row.tokens_per_second,
                size(row.bytes_per_step),
                row.bytes_per_second / 1e9
            )?;
        }
        if let Some(profile) = &self.profile {
            op_table(f, "prefill pass", &profile.prefill)?;
            op_table(f, "decode step", &profile.decode)?;
        }
        let again = if self.sanity.repeatable { "repeats" } else { "DIFFERS when repeated" };
        writeln!(
            f,
            "\nsanity: a greedy answer {again}, {} different tokens of {}",
            self.sanity.distinct,
            self.sanity.tokens.len()
        )
    }
}

fn op_table(f: &mut Formatter<'_>, title: &str, ops: &[OpTotal]) -> fmt::Result {
    let total: f64 = ops.iter().map(|op| op.seconds).sum();
    writeln!(f, "\n{title:<24} {:>6} {:>10} {:>7} {:>9}", "calls", "us", "share", "GB/s")?;
    for op in ops {
        writeln!(
            f,
            "{:<24} {:>6} {:>10.1} {:>6.1}% {:>9.1}",
            op.op,
            op.calls,
            1e6 * op.seconds,
            100.0 * op.seconds / total.max(1e-12),
            op.bytes as f64 / 1e9 / op.seconds.max(1e-12)
        )?;
    }
    Ok(())
}
