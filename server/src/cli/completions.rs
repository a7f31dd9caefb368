//! `forge completions`: what a shell needs to complete forge's commands.

use super::Cli;
use crate::output::print;
use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  forge completions bash > ~/.local/share/bash-completion/completions/forge"
)]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "forge", &mut script);
        print(format_args!("{}", String::from_utf8_lossy(&script)))?;
        Ok(ExitCode::SUCCESS)
    }
}
