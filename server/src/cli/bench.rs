//! `forge bench`: speed of a model on a backend, beside what the device could read.

use super::agents::Agents;
use super::options::EngineFlags;
use crate::backend::{BackendVisitor, with_backend};
use crate::bench::{Report, Suite};
use crate::models::ModelSource;
use crate::output::{note, print, print_json};
use crate::session;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use forge_core::Backend;
use forge_core::engine::EngineOptions;
use forge_core::weights::Checkpoint;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure prefill speed at several prompt lengths and decode speed at several depths.
///
/// Prompts are random tokens. Lengths beyond the model's context are left out.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  forge bench 4b.gguf --prompt-tokens 512,4096 --depths 0,8192 --json"
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    suite: Option<Other>,
    /// Folder, .gguf or .ytf [default: the embedded forge-tiny]
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Prompt lengths in tokens
    #[arg(long, value_delimiter = ',', default_value = "512,4096,8192", value_name = "N,...")]
    prompt_tokens: Vec<usize>,
    /// Tokens in the context when decoding begins
    #[arg(long, value_delimiter = ',', default_value = "0,8192,32768", value_name = "N,...")]
    depths: Vec<usize>,
    /// Tokens to decode at each depth
    #[arg(long, default_value_t = 64, value_name = "N")]
    tokens: usize,
    /// Time every op of one prefill pass and of one decode step at the last depth
    #[arg(long)]
    profile: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineFlags,
}

/// Measurements of another kind.
#[derive(Subcommand, Debug)]
enum Other {
    Agents(Agents),
}

impl Bench {
    pub(super) fn run(self) -> Result<ExitCode> {
        if let Some(Other::Agents(agents)) = self.suite {
            return agents.run();
        }
        if self.tokens < 2 {
            bail!("tokens: {} is too few to measure, use 2 or more", self.tokens);
        }
        let checkpoint = ModelSource::from(self.model).open()?;
        let most = checkpoint.config.max_positions;
        let fits = |name: &str, list: Vec<usize>, extra: usize| -> Vec<usize> {
            let (fitting, rest): (Vec<usize>, Vec<usize>) =
                list.into_iter().partition(|length| length.saturating_add(extra) <= most);
            if !rest.is_empty() {
                note(format_args!("left out: {name} {rest:?}, the model's context is {most}"));
            }
            fitting
        };
        let suite = Suite {
            prompt_tokens: fits("prompt lengths", self.prompt_tokens, 1),
            depths: fits("depths", self.depths, self.tokens + 1),
            tokens: self.tokens,
            profile: self.profile,
        };
        let options = self.engine.engine(Some(suite.context()), 1);
        let job = Job { checkpoint: &checkpoint, suite, options };
        let report = with_backend(&self.engine.backend()?, job)?;
        if self.json {
            print_json(&report)?;
        } else {
            print(format_args!("{report}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is left to do when the backend is open.
struct Job<'a> {
    checkpoint: &'a Checkpoint,
    suite: Suite,
    options: EngineOptions,
}

impl BackendVisitor for Job<'_> {
    type Output = Report;

    fn visit<B: Backend>(self, backend: B) -> Result<Report> {
        let mut engine = session::start(backend, self.checkpoint, &self.options, false)?;
        self.suite.run(&mut engine, self.checkpoint)
    }
}
