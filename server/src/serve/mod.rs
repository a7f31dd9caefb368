//! The HTTP server: each wire format is one file over one internal request.

mod admission;
mod constraint;
mod error;
mod generation;
mod generator;
mod grammar;
mod http;
mod log;
mod memory;
mod messages;
mod models;
mod openai;
mod prompt;
mod reply;
mod request;
mod responses;
mod thinking;
mod tools;
mod turns;

use crate::interrupt::Watch;
use crate::models::ModelSource;
use crate::output::note;
use admission::Gate;
use anyhow::{Context, Result, anyhow};
use generator::Generator;
use http::App;
pub(crate) use http::HttpOptions;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
pub(crate) use models::EngineSettings;
use models::{Catalog, ModelHub};
use responses::ResponseStore;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the server looks whether it was asked to end.
const STOP_POLL: Duration = Duration::from_millis(50);
/// Bounds of the histograms of times, in seconds.
const TIME_BUCKETS: [f64; 12] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// Everything that the operator chose.
#[derive(Clone, Debug)]
pub(crate) struct ServeOptions {
    /// The model that is loaded first.
    pub(crate) model: ModelSource,
    /// Other names of it.
    pub(crate) aliases: Vec<String>,
    /// Folder of further models.
    pub(crate) models_dir: Option<PathBuf>,
    /// Backend and sizes.
    pub(crate) engine: EngineSettings,
    /// Requests that may wait besides those that run.
    pub(crate) max_queue: usize,
    /// Port; 0 = any.
    pub(crate) port: u16,
    /// The HTTP side.
    pub(crate) http: HttpOptions,
}

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// If the address cannot be had, or the model not be loaded at the start.
pub(crate) fn serve(options: ServeOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(options));
    // A load that is under way is no reason to wait.
    runtime.shutdown_background();
    result
}

async fn run(mut options: ServeOptions) -> Result<()> {
    let watch = Watch::start();
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &TIME_BUCKETS)?
        .install_recorder()?;
    let (host, port) = (options.http.host.clone(), options.port);
    let listener = tokio::net::TcpListener::bind((host.as_str(), port))
        .await
        .with_context(|| format!("cannot listen on {host}:{port}"))?;
    let address = listener.local_addr()?;
    let limit = options.engine.options.slots + options.max_queue;
    options.engine.capacity = limit;
    let catalog = Catalog::new(options.model, options.aliases, options.models_dir);
    let first = catalog.first().name.clone();
    let generator = Generator {
        hub: ModelHub::new(catalog, options.engine),
        gate: Gate::new(limit),
        memory: Arc::default(),
    };
    let app = Arc::new(App {
        generator: generator.clone(),
        responses: Arc::new(ResponseStore::new(options.http.response_store_bytes)),
        options: options.http,
        metrics,
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
    });
    note(format_args!("listening on http://{address}"));
    if app.options.api_keys.is_empty() && !address.ip().is_loopback() {
        note("anyone who reaches this address may use it; --api-key asks for a key");
    }
    let (failed, failure) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        match generator.hub.acquire(Some(&first)).await {
            Ok(lease) => note(format_args!("{} is ready", lease.model.name)),
            // Nobody listens once the server is ending.
            Err(error) => drop(failed.send(error.message)),
        }
    });
    let mut startup_error = None;
    let stop = async {
        tokio::select! {
            () = asked_to_stop(&watch) => {}
            Ok(message) = failure => startup_error = Some(message),
        }
    };
    http::serve(listener, http::router(&app), &app.options, stop).await;
    match startup_error {
        Some(message) => Err(anyhow!(message)),
        None => Ok(()),
    }
}

/// Ends when the program is asked to.
async fn asked_to_stop(watch: &Watch) {
    while !watch.fired() {
        tokio::time::sleep(STOP_POLL).await;
    }
    note("ending; again to end at once");
}
