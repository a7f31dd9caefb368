//! forge: the command line and the server.

#![forbid(unsafe_code)]

mod backend;
mod bench;
mod cli;
mod evaluation;
mod generate;
mod interrupt;
mod machine;
mod models;
mod output;
mod prompt;
mod reasoning;
mod serve;
mod session;
mod stop;
mod synth;
mod transcript;

use clap::Parser;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// What `RUST_LOG` says; without it errors, and the server's line for each request.
fn log_filter() -> EnvFilter {
    match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(wanted) if !wanted.is_empty() => EnvFilter::from_default_env(),
        _ => EnvFilter::new("error,forge::serve=info"),
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter())
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    match cli::Cli::parse().run() {
        Ok(code) => code,
        // The reader of our output went away, as `head` does: nobody is left to tell.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("error: {}", output::one_line(&error)));
            ExitCode::FAILURE
        }
    }
}
