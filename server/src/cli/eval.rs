//! `forge eval`: the quality of a model in numbers.

use super::convert::{CALIBRATION_TOKENS, importance};
use super::options::kv_type_parser;
use crate::backend::{BackendChoice, BackendKind, BackendVisitor, with_backend};
use crate::evaluation::{Plan, Row, Table};
use crate::models::{ModelSource, TextModel};
use crate::output::{note, print, print_json};
use anyhow::{Context, Result, bail};
use clap::Args;
use forge_core::Backend;
use forge_core::convert::{Base, ConvertOptions, TypeRules, convert};
use forge_core::kv::KvType;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure perplexity, divergence from a reference, and recall of facts.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forge eval 27b.ytf --text prose.txt --against ./Qwen3.5-27B --max-kl 0.02
  forge eval 4b.ytf --text prose.txt --against 4b.ytf --kv-type q8_0
  forge eval ./Qwen3.5-4B --text prose.txt --types bf16,q8_0,q4_k,iq2_xxs

With --types the model is converted to each type in a temporary folder and compared with itself.")]
pub(crate) struct Eval {
    /// Folder, .gguf or .ytf
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Text that is predicted, and in which facts are hidden
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Model whose predictions are the right ones; its keys and values are f32
    #[arg(long, value_name = "REFERENCE")]
    against: Option<PathBuf>,
    /// Convert the model to each of these types and measure them against it
    #[arg(long, value_delimiter = ',', value_name = "TYPE,...", conflicts_with = "against")]
    types: Vec<String>,
    /// Text that weights the quantisers of --types
    #[arg(long, value_name = "FILE", requires = "types")]
    calibrate: Option<PathBuf>,
    /// Tokens of a window; the first half of each is context only
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    ctx: usize,
    /// Most tokens of the text
    #[arg(long, default_value_t = 8192, value_name = "N")]
    tokens: usize,
    /// Tokens of a question for a hidden fact [default: as --ctx]
    #[arg(long, value_name = "TOKENS")]
    needle_ctx: Option<usize>,
    /// Questions at each depth; 0 = none
    #[arg(long, default_value_t = 4, value_name = "N")]
    needles: usize,
    /// Where facts are hidden, 0 = start, 1 = end
    #[arg(long, value_delimiter = ',', default_value = "0,0.25,0.5,0.75,1", value_name = "D,...")]
    depths: Vec<f64>,
    /// Fail if the mean divergence from the reference is larger
    #[arg(long, value_name = "NATS")]
    max_kl: Option<f64>,
    /// Storage of keys and values
    #[arg(long, value_parser = kv_type_parser(), default_value = "f16", value_name = "TYPE")]
    kv_type: KvType,
    /// Where to run; auto = the first of cuda, wgpu, cpu that works
    #[arg(long, value_enum, default_value_t = BackendKind::Auto, value_name = "BACKEND")]
    backend: BackendKind,
    /// Number of the GPU, for wgpu also a part of its name [default: the first or best]
    #[arg(long, visible_alias = "adapter", value_name = "GPU")]
    device: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Eval {
    pub(super) fn run(self) -> Result<ExitCode> {
        if let Some(depth) = self.depths.iter().find(|depth| !(0.0..=1.0).contains(*depth)) {
            bail!("depths: {depth} is outside 0 to 1");
        }
        if self.max_kl.is_some() && self.against.is_none() && self.types.is_empty() {
            bail!("max-kl: needs --against or --types");
        }
        let text =
            fs::read_to_string(&self.text).with_context(|| self.text.display().to_string())?;
        let choice = BackendChoice { kind: self.backend, device: self.device.clone() };
        let plan = Plan {
            text: &text,
            context: self.ctx,
            tokens: self.tokens,
            needle_context: self.needle_ctx.unwrap_or(self.ctx),
            needles: self.needles,
            depths: &self.depths,
            kv_type: self.kv_type,
        };
        let table = match self.types.is_empty() {
            true => self.one(&plan, &choice)?,
            false => self.types(&plan, &choice)?,
        };
        if self.json {
            print_json(&table)?;
        } else {
            print(format_args!("{table}"))?;
        }
        let Some(most) = self.max_kl else { return Ok(ExitCode::SUCCESS) };
        let mut code = ExitCode::SUCCESS;
        for row in &table.rows {
            if let Some(kl) = row.mean_kl()
                && (kl > most || kl.is_nan())
            {
                note(format_args!(
                    "error: {}: the mean divergence {kl:.5} exceeds {most}",
                    row.name
                ));
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }

    fn one(&self, plan: &Plan<'_>, choice: &BackendChoice) -> Result<Table> {
        let model = TextModel::open(&ModelSource::Path(self.model.clone()))?;
        let reference = match &self.against {
            Some(path) => Some(TextModel::open(&ModelSource::Path(path.clone()))?),
            None => None,
        };
        let job = Job { plan, model: &model, reference: reference.as_ref() };
        Ok(Table { rows: vec![with_backend(choice, job)?] })
    }

    fn types(&self, plan: &Plan<'_>, choice: &BackendChoice) -> Result<Table> {
        let original = TextModel::open(&ModelSource::Path(self.model.clone()))?;
        let folder = tempfile::tempdir().context("temporary folder")?;
        let importance = match &self.calibrate {
            Some(path) => Some(importance(
                &original.checkpoint,
                path,
                CALIBRATION_TOKENS,
                &crate::interrupt::Watch::start(),
            )?),
            None => None,
        };
        let mut rows = Vec::new();
        for name in &self.types {
            let path = folder.path().join(format!("{}.ytf", name.replace(':', "-")));
            let base: Base = name.parse()?;
            let options = ConvertOptions {
                types: TypeRules { base, keep: Vec::new() },
                importance: importance.as_ref(),
                ..ConvertOptions::default()
            };
            convert(&original.checkpoint, &path, options)?;
            let model = TextModel::open(&ModelSource::Path(path.clone()))?;
            let job = Job { plan, model: &model, reference: Some(&original) };
            let mut row = with_backend(choice, job)?;
            row.name.clone_from(name);
            rows.push(row);
            drop(model);
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        Ok(Table { rows })
    }
}

/// What is left to do when the backend is open.
struct Job<'a> {
    plan: &'a Plan<'a>,
    model: &'a TextModel,
    reference: Option<&'a TextModel>,
}

impl BackendVisitor for Job<'_> {
    type Output = Row;

    fn visit<B: Backend>(self, backend: B) -> Result<Row> {
        self.plan.measure(&backend, self.model, self.reference)
    }
}
