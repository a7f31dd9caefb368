//! `forge convert`: any checkpoint to one `.ytf` file.

use crate::interrupt::Watch;
use crate::models::ModelSource;
use crate::output::{print, print_json, size};
use crate::session;
use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use forge_core::convert::{ConvertOptions, ConvertReport, convert};
use forge_core::weights::quant::StorageType;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

/// Types that forge can write.
const TYPES: [&str; 9] = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"];

/// Convert a model to one .ytf file, compared with its source when it is written.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forge convert ./Qwen3.5-4B qwen3.5-4b.ytf --type q8_0")]
pub(crate) struct Convert {
    /// Folder with config.json and safetensors, .gguf file, or .ytf file
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// New file
    #[arg(value_name = "DST.ytf")]
    destination: PathBuf,
    /// Type of the matrices; vectors and routers stay f32 [default: as in the source]
    #[arg(long = "type", value_parser = type_parser(), value_name = "TYPE")]
    storage: Option<StorageType>,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
    /// Quantise again what is quantised already, which loses more than the type shows
    #[arg(long)]
    requantise: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn type_parser() -> impl TypedValueParser<Value = StorageType> {
    PossibleValuesParser::new(TYPES).try_map(|name| name.parse::<StorageType>())
}

impl Convert {
    pub(super) fn run(self) -> Result<ExitCode> {
        let source = ModelSource::Path(self.source).open()?;
        let bar = session::bar("converting", session::weight_bytes(&source));
        let watch = Watch::start();
        let options = ConvertOptions {
            storage: self.storage,
            overwrite: self.overwrite,
            allow_requantise: self.requantise,
            progress: Some(Box::new(|progress| {
                bar.set_position(progress.done_bytes);
                if watch.fired() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })),
        };
        let report = convert(&source, &self.destination, options);
        bar.finish_and_clear();
        let report = report?;
        if self.json {
            print_json(&report)?;
        } else {
            print(format_args!("{}", table(&report)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Tensors by the types they had and have, then the totals.
fn table(report: &ConvertReport) -> String {
    let mut groups: BTreeMap<(&str, &str), (usize, u64, f32)> = BTreeMap::new();
    for tensor in &report.tensors {
        let group = groups.entry((tensor.from, tensor.to)).or_default();
        *group = (group.0 + 1, group.1 + tensor.bytes, group.2.max(tensor.error));
    }
    let mut text =
        format!("{:<8} {:<8} {:>7} {:>12} {:>10}\n", "from", "to", "tensors", "size", "max error");
    for ((from, to), (count, bytes, error)) in groups {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{from:<8} {to:<8} {count:>7} {:>12} {error:>10.2e}", size(bytes));
    }
    for tensor in &report.tensors {
        if let Some(reason) = &tensor.fallback {
            let _ = writeln!(text, "{} is {}: {reason}", tensor.name, tensor.to);
        }
    }
    let (before, after) = (size(report.source_bytes), size(report.file_bytes));
    let _ = writeln!(
        text,
        "{}: {before} of tensors became a file of {after}, verified",
        report.path.display()
    );
    text
}
