//! The command line: one clap struct a command.

mod convert;
mod options;
mod run;

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
    Convert(convert::Convert),
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
            Command::Convert(command) => command.run(),
        }
    }
}
