//! The command line: one clap struct a command.

mod agents;
mod bench;
mod chat;
mod completions;
mod convert;
mod doctor;
mod eval;
mod inspect;
mod options;
mod run;
mod serve;
mod synth;
mod tokenize;

use crate::interrupt;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// LLM inference engine for hybrid (Gated DeltaNet + attention) models.
#[derive(Parser, Debug)]
#[command(name = "forge", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(run::Run),
    Chat(chat::Chat),
    Serve(serve::Serve),
    Inspect(inspect::Inspect),
    Tokenize(tokenize::Tokenize),
    Convert(convert::Convert),
    Eval(eval::Eval),
    Bench(bench::Bench),
    Synth(synth::SynthCommand),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// What the command meets; the message is for people.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        interrupt::install()?;
        match self.command {
            Command::Run(command) => command.run(),
            Command::Chat(command) => command.run(),
            Command::Serve(command) => command.run(),
            Command::Inspect(command) => command.run(),
            Command::Tokenize(command) => command.run(),
            Command::Convert(command) => command.run(),
            Command::Eval(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Synth(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Completions(command) => command.run(),
        }
    }
}
