//! `forge inspect`: what a checkpoint is and what it will cost.

use crate::models::ModelSource;
use crate::output::{print, print_json, size};
use anyhow::Result;
use clap::Args;
use forge_core::config::{FeedForwardConfig, ModelConfig};
use forge_core::inspect::Inspection;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what a model file holds and what it will cost; no tensor is read.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forge inspect qwen3.5-4b-q4_k.gguf")]
pub(crate) struct Inspect {
    /// Folder, .gguf or .ytf [default: the embedded forge-tiny]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(super) fn run(self) -> Result<ExitCode> {
        let checkpoint = ModelSource::from(self.file).open()?;
        let inspection = Inspection::of(&checkpoint);
        if self.json {
            print_json(&inspection)?;
        } else {
            print(format_args!("{}", Report(&inspection)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// An inspection for people.
struct Report<'a>(&'a Inspection);

impl Display for Report<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Inspection { config, .. } = self.0;
        self.facts(f)?;
        graph(config, f)?;
        self.costs(f)?;
        writeln!(f, "\n{:<36} {:<8} {:>12}  shape", "tensor", "type", "size")?;
        for tensor in &self.0.tensors {
            let shape = format!("{:?}", tensor.shape);
            writeln!(
                f,
                "{:<36} {:<8} {:>12}  {shape}",
                tensor.name,
                tensor.storage,
                size(tensor.bytes)
            )?;
        }
        Ok(())
    }
}

impl Report<'_> {
    fn facts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let it = self.0;
        writeln!(f, "name            {}", it.name)?;
        writeln!(f, "file            {} ({:?})", it.path.display(), it.format)?;
        writeln!(f, "family          {}", it.family)?;
        write!(f, "parameters      {}", it.parameters)?;
        match it.mtp_parameters {
            0 => writeln!(f)?,
            mtp => writeln!(f, " and {mtp} of the draft block")?,
        }
        writeln!(f, "vocabulary      {}", it.vocab_size)?;
        writeln!(f, "context         {} tokens", it.context)?;
        writeln!(f, "chat template   {}", if it.chat_template { "yes" } else { "no" })?;
        let generation = &it.generation;
        let or_dash = |value: Option<f32>| value.map_or("-".to_owned(), |v| v.to_string());
        writeln!(
            f,
            "sampling        temperature {}, top_k {}, top_p {}, min_p {}; stops at {:?}",
            or_dash(generation.temperature),
            generation.top_k.map_or("-".to_owned(), |k| k.to_string()),
            or_dash(generation.top_p),
            or_dash(generation.min_p),
            generation.eos,
        )
    }

    fn costs(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let it = self.0;
        let types: Vec<_> = it
            .bytes_by_type
            .iter()
            .map(|(name, bytes)| format!("{name} {}", size(*bytes)))
            .collect();
        writeln!(f, "weights         {} ({})", size(it.weight_bytes), types.join(", "))?;
        let kv: Vec<_> = it
            .kv
            .iter()
            .map(|cost| format!("{:?} {} bytes", cost.kv_type, cost.bytes_per_token).to_lowercase())
            .collect();
        writeln!(f, "KV per token    {}", kv.join(", "))?;
        writeln!(f, "state           {} per sequence", size(it.state_bytes_per_sequence))
    }
}

fn graph(config: &ModelConfig, f: &mut Formatter<'_>) -> fmt::Result {
    let (attention, delta) = (config.attention_layers(), config.delta_net_layers());
    write!(f, "layers          {}: {attention} attention", config.layers.len())?;
    if delta > 0 {
        write!(f, ", {delta} gated delta net")?;
    }
    writeln!(f, "{}", if config.mtp { ", and a draft block" } else { "" })?;
    writeln!(f, "hidden          {}", config.hidden_size)?;
    let heads = &config.attention;
    writeln!(
        f,
        "attention       {} query and {} kv heads of {}, {} rotated",
        heads.query_heads, heads.kv_heads, heads.head_dim, heads.rope.dims
    )?;
    if let Some(net) = &config.delta_net {
        writeln!(
            f,
            "delta net       {} key heads of {}, {} value heads of {}",
            net.key_heads, net.key_dim, net.value_heads, net.value_dim
        )?;
    }
    match config.feed_forward {
        FeedForwardConfig::Dense { intermediate } => writeln!(f, "feed-forward    {intermediate}"),
        FeedForwardConfig::Moe { experts, top_k, intermediate, shared_intermediate } => writeln!(
            f,
            "feed-forward    {top_k} of {experts} experts of {intermediate}, shared {shared_intermediate}"
        ),
    }
}
