//! `forge synth`: a model of random weights in the shape of a real one.

use crate::interrupt::Watch;
use crate::output::{print, size};
use crate::session;
use crate::synth::{Mix, Shape, Synth};
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Write a GGUF file with random weights in the shape of a real model, for measuring speed.
///
/// The same arguments write the same bytes. Its text is noise.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forge synth --shape qwen3.5-4b --type q8_0 4b.gguf && forge bench 4b.gguf"
)]
pub(crate) struct SynthCommand {
    /// New file
    #[arg(value_name = "OUT.gguf")]
    path: PathBuf,
    /// Model to imitate
    #[arg(long, value_enum)]
    shape: Shape,
    /// Storage of the matrices
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    mix: Mix,
    /// With the draft block
    #[arg(long)]
    mtp: bool,
    /// Seed of the weights
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Main layers [default: all of the real model]
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Tokens of the vocabulary [default: 248320, as in the real models]
    #[arg(long, value_name = "N")]
    vocab: Option<usize>,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
}

impl SynthCommand {
    pub(super) fn run(self) -> Result<ExitCode> {
        if self.path.exists() && !self.overwrite {
            bail!("{}: exists; --overwrite replaces it", self.path.display());
        }
        let synth = Synth {
            shape: self.shape,
            mix: self.mix,
            mtp: self.mtp,
            layers: self.layers,
            vocabulary: self.vocab,
            seed: self.seed,
        };
        let watch = Watch::start();
        let start = Instant::now();
        let mut bar = None;
        let bytes = synth.write(&self.path, &mut |done, total| {
            bar.get_or_insert_with(|| session::bar("writing", total)).set_position(done);
            watch.fired()
        })?;
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let seconds = start.elapsed().as_secs_f64().max(1e-9);
        let rate = bytes as f64 / 1e9 / seconds;
        print(format_args!(
            "{}: {} of weights in {seconds:.1} s, {rate:.2} GB/s\n",
            self.path.display(),
            size(bytes)
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
