//! `forge bench agents`: many dialogues at once, and how much of their prompts is computed again.

use crate::output::{print, print_json, size};
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use forge_core::kv::{BLOCK_TOKENS, KvType};
use forge_core::prefix::EvictionPolicy;
use forge_core::prefix::simulate::{self, Outcome, Setting, SnapshotType, Trace, Workload};
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

/// Measure prefix reuse: tenants that each hold dialogues of six turns, nearly in cycles.
///
/// With --simulate the cache runs against the cost model of Qwen3.5-4B instead of a device. The
/// ideal hit rate beside it is that of a cache of the same bytes that may resume at any token and
/// pays nothing for states.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forge bench agents --simulate --snapshot bf16 --cache-ram 60GiB"
)]
pub(super) struct Agents {
    /// Run against a cost model, without a device or a model
    #[arg(long, required = true)]
    simulate: bool,
    /// Numbers of tenants, one run each
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "5,10,20,40,80,160,320",
        value_name = "N,..."
    )]
    tenants: Vec<usize>,
    /// Storage of saved states
    #[arg(long, value_enum, default_value_t = Snapshot::F32, value_name = "TYPE")]
    snapshot: Snapshot,
    /// Storage of keys and values
    #[arg(long, value_parser = kv_type_parser(), default_value = "bf16", value_name = "TYPE")]
    kv_type: KvType,
    /// Cache on the device, in bytes or with KiB, MiB, GiB
    #[arg(long, value_parser = bytes, default_value = "10.26GiB", value_name = "BYTES")]
    cache: u64,
    /// Cache in host memory, in bytes or with KiB, MiB, GiB; 0 = none
    #[arg(long, value_parser = bytes, default_value = "0", value_name = "BYTES")]
    cache_ram: u64,
    /// What the tenants do
    #[arg(long, value_parser = trace_parser(), default_value = "agents", value_name = "NAME")]
    trace: Trace,
    /// What is dropped first [default: reuse with host memory, density without]
    #[arg(long, value_enum, value_name = "RULE")]
    policy: Option<Policy>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Storage of saved states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Snapshot {
    /// The bits of the running state.
    F32,
    /// Half the size, rounded.
    Bf16,
}

/// Rule of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// By chance of reuse and age.
    Reuse,
    /// By saved tokens for each byte; keeps a stable part.
    Density,
}

fn kv_type_parser() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(["f16", "bf16", "q8_0", "fp8", "f32"])
        .try_map(|name| name.parse::<KvType>())
}

fn trace_parser() -> impl TypedValueParser<Value = Trace> {
    PossibleValuesParser::new(Trace::ALL.map(Trace::name)).try_map(|name| {
        Trace::ALL.into_iter().find(|trace| trace.name() == name).ok_or("unknown trace")
    })
}

/// Bytes from a number with an optional binary unit.
fn bytes(text: &str) -> Result<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => bail!("unit {unit}: use KiB, MiB, GiB or TiB"),
    };
    let number: f64 = number.parse().with_context(|| format!("{text} is not a size"))?;
    Ok((number * (1u64 << shift) as f64) as u64)
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    trace: Trace,
    setting: Setting,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    tenants: usize,
    ideal_hit_rate: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Agents {
    pub(super) fn run(self) -> Result<ExitCode> {
        debug_assert!(self.simulate, "clap asks for it");
        let snapshot = match self.snapshot {
            Snapshot::F32 => SnapshotType::F32,
            Snapshot::Bf16 => SnapshotType::Bf16,
        };
        let policy = self.policy.map(|policy| match policy {
            Policy::Reuse => EvictionPolicy::Reuse,
            Policy::Density => EvictionPolicy::Density,
        });
        let reference = Setting::reference(self.kv_type, snapshot);
        let setting =
            Setting { device_bytes: self.cache, host_bytes: self.cache_ram, policy, ..reference };
        // Same bytes on the device, no second tier: what a perfect cache does with the first.
        let policy = Some(EvictionPolicy::Reuse);
        let ideal = Setting { snapshot_bytes: 0, host_bytes: 0, policy, ..setting };
        let mut rows = Vec::new();
        for tenants in self.tenants {
            let workload = Workload::reference(self.trace, tenants);
            let ideal_hit_rate = simulate::run(workload, &ideal)?.hit_rate;
            let outcome = simulate::run(workload, &setting)?;
            rows.push(Row { tenants, ideal_hit_rate, outcome });
        }
        let report = Report { trace: self.trace, setting, rows };
        if self.json {
            print_json(&report)?;
        } else {
            print(format_args!("{report}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        writeln!(
            f,
            "simulated trace {}: blocks of {BLOCK_TOKENS} tokens, {} a token, {} a snapshot ({} \
             blocks)",
            self.trace.name(),
            size((setting.block_bytes / BLOCK_TOKENS) as u64),
            size(setting.snapshot_bytes as u64),
            setting.snapshot_blocks(),
        )?;
        writeln!(
            f,
            "device {} = {} blocks (at most {} tokens), host {} = {} blocks, eviction by {:?}",
            size(setting.device_bytes),
            setting.device_blocks(),
            setting.device_blocks() * BLOCK_TOKENS,
            size(setting.host_bytes),
            setting.host_blocks(),
            setting.options().policy,
        )?;
        writeln!(
            f,
            "\n{:>7} {:>8} {:>7} {:>7} {:>12} {:>8} {:>8} {:>8} {:>9} {:>9}",
            "tenants",
            "requests",
            "hit %",
            "ideal",
            "computed",
            "TTFT ms",
            "p50",
            "p99",
            "fetched",
            "evicted"
        )?;
        for row in &self.rows {
            let outcome = &row.outcome;
            writeln!(
                f,
                "{:>7} {:>8} {:>7.1} {:>7.1} {:>12} {:>8.0} {:>8.0} {:>8.0} {:>9} {:>9}",
                row.tenants,
                outcome.requests,
                100.0 * outcome.hit_rate,
                100.0 * row.ideal_hit_rate,
                outcome.computed_tokens,
                1e3 * outcome.ttft_mean_seconds,
                1e3 * outcome.ttft_p50_seconds,
                1e3 * outcome.ttft_p99_seconds,
                size(outcome.fetched_bytes),
                outcome.stats.device_evictions,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes("0").unwrap(), 0);
        assert_eq!(bytes("1.5KiB").unwrap(), 1536);
        assert_eq!(bytes("60 GiB").unwrap(), 60 << 30);
        assert!(bytes("6 apples").is_err());
        assert!(bytes("GiB").is_err());
    }
}
