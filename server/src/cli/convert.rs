//! `forge convert`: any checkpoint to one `.ytf` or GGUF file.

use crate::interrupt::Watch;
use crate::models::ModelSource;
use crate::output::{note, print, print_json, size};
use crate::session;
use anyhow::{Context, Result, bail};
use clap::Args;
use forge_core::convert::{
    Base, ConvertOptions, ConvertReport, Importance, KeepRule, TypeRules, calibrate, convert,
    verify,
};
use forge_core::tokenizer::{SpecialTokens, Tokenizer};
use forge_core::weights::Checkpoint;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tokens of a calibration text that are enough for the means to settle.
pub(super) const CALIBRATION_TOKENS: usize = 16_384;

/// Convert a model to one file, every tensor compared with its source.
///
/// A name that ends in .gguf makes a GGUF file, which other engines read; any other a .ytf. A
/// conversion that was interrupted goes on where it was when it is run again.
#[derive(Args, Debug)]
#[command(after_help = "\
Types: f32 f16 bf16 q8_0 q6_k q5_k q5_1 q5_0 q4_k q4_1 q4_0 iq4_nl iq4_xs mxfp4 q3_k iq3_xxs q2_k
       iq2_xs iq2_xxs; mix:12gb, mix:16gb, mix:24gb or any size choose one for each matrix

Examples:
  forge convert ./Qwen3.5-4B qwen3.5-4b.ytf --type q8_0
  forge convert ./Qwen3.5-27B 27b.ytf --type mix:16gb --calibrate prose.txt
  forge convert ./Qwen3.5-4B 4b.gguf --type q4_k --keep 'lm_head=q6_k' --keep '*.attn.v=q6_k'
  forge convert --verify 27b.ytf ./Qwen3.5-27B")]
pub(crate) struct Convert {
    /// Folder with config.json and safetensors, .gguf file, or .ytf file; with --verify the file to
    /// check
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// New file; with --verify what the file was made from
    #[arg(value_name = "DST")]
    destination: PathBuf,
    /// Type of the matrices or mix:SIZE; vectors and routers stay f32 [default: as in the source]
    #[arg(long = "type", value_name = "TYPE|mix:SIZE")]
    base: Option<Base>,
    /// Type of the matrices whose name fits; * stands for anything; the first that fits decides
    #[arg(long, value_name = "PATTERN=TYPE")]
    keep: Vec<KeepRule>,
    /// Text that shows which columns matter; it runs through the model on the processor
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Most tokens of the calibration text
    #[arg(long, default_value_t = CALIBRATION_TOKENS, value_name = "N")]
    calibrate_tokens: usize,
    /// Leave out the draft block
    #[arg(long)]
    no_mtp: bool,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
    /// Quantise again what is quantised already, which loses more than the type shows
    #[arg(long, visible_alias = "requantise")]
    allow_requantise: bool,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Compare a file (SRC) with what it was made from (DST); write nothing
    #[arg(
        long,
        conflicts_with_all = [
            "base", "keep", "calibrate", "no_mtp", "overwrite", "allow_requantise",
        ]
    )]
    verify: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Convert {
    pub(super) fn run(self) -> Result<ExitCode> {
        if self.jobs == Some(0) {
            bail!("jobs: 0 threads convert nothing");
        }
        let report = if self.verify { self.verify()? } else { self.convert()? };
        if self.json {
            print_json(&report)?;
        } else {
            print(format_args!("{}", table(&report, self.verify)))?;
        }
        let failed = report.failures().count();
        if failed > 0 {
            note(format_args!("error: {failed} tensors differ by more than their types explain"));
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn verify(&self) -> Result<ConvertReport> {
        let original = ModelSource::Path(self.destination.clone()).open()?;
        let bar = session::bar("comparing", session::weight_bytes(&original));
        let watch = Watch::start();
        let progress = Box::new(|progress: forge_core::convert::ConvertProgress<'_>| {
            bar.set_position(progress.done_bytes);
            stop_if(&watch)
        });
        let report = verify(&self.source, &original, Some(progress));
        bar.finish_and_clear();
        Ok(report?)
    }

    fn convert(&self) -> Result<ConvertReport> {
        let source = ModelSource::Path(self.source.clone()).open()?;
        let watch = Watch::start();
        let importance = match &self.calibrate {
            Some(path) => Some(importance(&source, path, self.calibrate_tokens, &watch)?),
            None => None,
        };
        let bar = session::bar("converting", session::weight_bytes(&source));
        let options = ConvertOptions {
            types: TypeRules { base: self.base.unwrap_or_default(), keep: self.keep.clone() },
            importance: importance.as_ref(),
            overwrite: self.overwrite,
            allow_requantise: self.allow_requantise,
            without_mtp: self.no_mtp,
            jobs: self.jobs,
            progress: Some(Box::new(|progress| {
                bar.set_position(progress.done_bytes);
                stop_if(&watch)
            })),
        };
        let report = convert(&source, &self.destination, options);
        bar.finish_and_clear();
        Ok(report?)
    }
}

fn stop_if(watch: &Watch) -> ControlFlow<()> {
    if watch.fired() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Importance by the text in `path`.
pub(super) fn importance(
    source: &Checkpoint,
    path: &Path,
    most: usize,
    watch: &Watch,
) -> Result<Importance> {
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(name)?;
    let tokenizer = Tokenizer::from_source(&source.tokenizer, source.tokenizer_config.as_deref())?;
    let mut tokens = tokenizer.encode(&text, SpecialTokens::AsText).with_context(name)?;
    tokens.truncate(most);
    let bar = ProgressBar::new(tokens.len() as u64).with_message("calibrating");
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let importance = calibrate(source, &tokens, &file, &mut |done| {
        bar.set_position(done as u64);
        stop_if(watch)
    });
    bar.finish_and_clear();
    Ok(importance?)
}

/// Sums over tensors with the same types.
#[derive(Default)]
struct Group {
    tensors: usize,
    bytes: u64,
    rms: f64,
    block: f64,
}

/// Tensors by the types they had and have, then what is worth knowing of single ones.
fn table(report: &ConvertReport, verified: bool) -> String {
    let mut groups: BTreeMap<(&str, &str), Group> = BTreeMap::new();
    for tensor in &report.tensors {
        let group = groups.entry((tensor.from, tensor.to)).or_default();
        group.tensors += 1;
        group.bytes += tensor.bytes;
        group.rms = group.rms.max(tensor.deviation.relative_rms);
        group.block = group.block.max(tensor.deviation.worst_block);
    }
    let mut text = format!(
        "{:<8} {:<8} {:>7} {:>12} {:>10} {:>12}\n",
        "from", "to", "tensors", "size", "rms error", "worst block"
    );
    for ((from, to), Group { tensors, bytes, rms, block }) in groups {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{from:<8} {to:<8} {tensors:>7} {:>12} {rms:>10.2e} {block:>12.2e}",
            size(bytes)
        );
    }
    for tensor in &report.tensors {
        if let Some(reason) = &tensor.fallback {
            let _ = writeln!(text, "{} is {}: {reason}", tensor.name, tensor.to);
        }
    }
    for tensor in report.failures() {
        let error = tensor.deviation.relative_rms;
        let _ = writeln!(text, "{} is off by {error:.2e} as {}", tensor.name, tensor.to);
    }
    if let Some(worst) = report.worst().filter(|worst| worst.deviation.relative_rms > 0.0) {
        let _ = writeln!(
            text,
            "errors are relative, the largest of their group; {} has the largest of all",
            worst.name
        );
    }
    if report.resumed > 0 {
        let _ = writeln!(text, "{} tensors were there from an earlier run", report.resumed);
    }
    let (before, after) = (size(report.source_bytes), size(report.file_bytes));
    let path = report.path.display();
    let _ = match verified {
        true => writeln!(text, "{path}: {after}, compared with {before} of tensors"),
        false => writeln!(text, "{path}: {before} of tensors became a file of {after}, verified"),
    };
    text
}
