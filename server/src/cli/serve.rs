//! `forge serve`: the HTTP server.

use super::options::{CacheFlags, EngineFlags};
use crate::models::ModelSource;
use crate::serve::{EngineSettings, HttpOptions, ServeOptions, serve};
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve a model over HTTP: the OpenAI API, and a chat page.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    forge serve\n  \
    forge serve ./Qwen3.5-4B --slots 4 --ctx 32768\n  \
    forge serve --models-dir ~/models --host 0.0.0.0 --api-key secret")]
pub(crate) struct Serve {
    /// Folder, .gguf or .ytf [default: the embedded forge-tiny]
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Another name of MODEL for clients; may be given several times
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Folder of further models; a request's `model` field chooses
    #[arg(long, value_name = "FOLDER")]
    models_dir: Option<PathBuf>,
    /// Never change the model, whatever a request asks for
    #[arg(long)]
    no_swap: bool,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    host: String,
    /// Port to listen on; 0 = any
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    port: u16,
    /// Ask for this key, except for /health and the chat page; may be given several times
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// Read keys from this file, one a line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Let web pages of this origin call, * = all; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Replies that may wait besides those that run; more are refused with 429
    #[arg(long, default_value_t = 64, value_name = "N")]
    max_queue: usize,
    /// Largest body of a request in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    body_limit: usize,
    /// Memory for stored responses in MiB; the least used ones go first, 0 = keep none
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    response_store: usize,
    /// Longest time for the head of a request, in seconds
    #[arg(long, default_value_t = 30, value_name = "S")]
    header_timeout: u64,
    /// Longest time for the body of a request, in seconds
    #[arg(long, default_value_t = 60, value_name = "S")]
    read_timeout: u64,
    /// Send a sign of life after this many quiet seconds of a stream; 0 = never
    #[arg(long, default_value_t = 10, value_name = "S")]
    ping: u64,
    /// Longest time that running requests get when the server ends, in seconds
    #[arg(long, default_value_t = 10, value_name = "S")]
    drain_timeout: u64,
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    cache: CacheFlags,
}

/// Sequences at once, unless the user says otherwise.
const SLOTS: usize = 4;

impl Serve {
    pub(super) fn run(self) -> Result<ExitCode> {
        let api_keys = self.keys()?;
        if self.no_swap && self.models_dir.is_some() {
            bail!("--models-dir: has no use with --no-swap");
        }
        if self.body_limit == 0 {
            bail!("--body-limit: 0 leaves no room for a request");
        }
        serve(ServeOptions {
            model: ModelSource::from(self.model),
            aliases: self.alias,
            models_dir: self.models_dir,
            engine: EngineSettings {
                backend: self.engine.backend()?,
                options: self.cache.over(self.engine.engine(None, SLOTS)),
                disk: self.cache.disk(),
                capacity: 1,
            },
            max_queue: self.max_queue,
            port: self.port,
            http: HttpOptions {
                host: self.host,
                api_keys,
                cors_origins: self.cors_origin,
                body_limit_bytes: self.body_limit.saturating_mul(1 << 20),
                response_store_bytes: self.response_store.saturating_mul(1 << 20),
                header_timeout: Duration::from_secs(self.header_timeout.max(1)),
                read_timeout: Duration::from_secs(self.read_timeout.max(1)),
                ping: (self.ping > 0).then(|| Duration::from_secs(self.ping)),
                drain_timeout: Duration::from_secs(self.drain_timeout),
            },
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// The keys of flags and file.
    fn keys(&self) -> Result<Vec<String>> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            let lines = text.lines().map(str::trim);
            keys.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
            if keys.is_empty() {
                bail!("{}: holds no key", path.display());
            }
        }
        if keys.iter().any(|key| key.trim().is_empty()) {
            bail!("--api-key: is empty");
        }
        Ok(keys)
    }
}
