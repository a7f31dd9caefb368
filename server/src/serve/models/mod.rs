//! Which model runs. One does at a time: a request for another waits until the running requests of
//! the present one are done, then the models change places.
//!
//! Requests are grouped: whoever waits for the model that comes next gets it together, and for a
//! moment after the first of them came the present model still takes new requests. So two clients
//! of two models cost one change for each group of requests, not one for each request.

mod catalog;
mod loaded;

use super::error::{ApiError, ErrorKind};
pub(crate) use catalog::{Catalog, Entry};
pub(crate) use loaded::{EngineSettings, LoadedModel, Progress};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long the present model takes new requests while others wait for another one.
const GROUP_WINDOW: Duration = Duration::from_secs(1);
/// How long a model that others wait to replace stays idle: a client that has just got its answer
/// may have another question.
const LINGER: Duration = Duration::from_millis(30);

/// The right to use the present model. While it exists, the model stays.
pub(crate) struct Lease {
    /// The model.
    pub(crate) model: Arc<LoadedModel>,
    hub: Arc<ModelHub>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        {
            let mut state = self.hub.lock();
            state.active -= 1;
            state.idle_since = Some(Instant::now());
        }
        self.hub.pump();
    }
}

/// What the server can say about its models at any time.
#[derive(Clone, Debug, Default)]
pub(crate) struct HubStatus {
    /// The model that answers now.
    pub(crate) model: Option<String>,
    /// Its device.
    pub(crate) device: Option<String>,
    /// The model that is being loaded, with bytes done and in all.
    pub(crate) loading: Option<(String, u64, u64)>,
    /// Model that could not be loaded last, and why.
    pub(crate) failed: Option<(String, String)>,
    /// Why the present engine stopped.
    pub(crate) fault: Option<String>,
    /// Requests that wait for a model.
    pub(crate) waiting: usize,
}

struct Present {
    entry: Entry,
    model: Arc<LoadedModel>,
    thread: JoinHandle<()>,
    since: Instant,
}

struct Waiter {
    entry: Entry,
    reply: oneshot::Sender<Result<Lease, ApiError>>,
    since: Instant,
}

#[derive(Default)]
struct State {
    present: Option<Present>,
    /// Leases of the present model.
    active: usize,
    /// When the last lease ended.
    idle_since: Option<Instant>,
    waiting: VecDeque<Waiter>,
    loading: Option<(String, Arc<Progress>)>,
    failed: Option<(String, String)>,
}

/// Loads, changes and hands out models.
pub(crate) struct ModelHub {
    catalog: Catalog,
    settings: EngineSettings,
    runtime: Handle,
    state: Mutex<State>,
}

impl ModelHub {
    /// A hub in the present runtime; nothing is loaded yet.
    pub(crate) fn new(catalog: Catalog, settings: EngineSettings) -> Arc<Self> {
        let runtime = Handle::current();
        Arc::new(Self { catalog, settings, runtime, state: Mutex::default() })
    }

    /// The models that can be served. Reads a folder.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.catalog.entries()
    }

    /// What there is to say, without waiting for anything.
    pub(crate) fn status(&self) -> HubStatus {
        let state = self.lock();
        let present = state.present.as_ref();
        HubStatus {
            model: present.map(|present| present.entry.name.clone()),
            device: present.map(|present| present.model.device.clone()),
            loading: state.loading.as_ref().map(|(name, progress)| {
                let read = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
                (name.clone(), read(&progress.done), read(&progress.total))
            }),
            failed: state.failed.clone(),
            fault: present.and_then(|p| p.model.engine.fault().map(str::to_owned)),
            waiting: state.waiting.len(),
        }
    }

    /// The present model, without a lease: for figures only.
    pub(crate) fn present(&self) -> Option<Arc<LoadedModel>> {
        self.lock().present.as_ref().map(|present| Arc::clone(&present.model))
    }

    /// The model of a name, the present one if there is none; waits while models change.
    ///
    /// # Errors
    /// 404 with the list for an unknown name; 503 if the model cannot be loaded.
    pub(crate) async fn acquire(self: &Arc<Self>, name: Option<&str>) -> Result<Lease, ApiError> {
        let entry = self.resolve(name).await?;
        let (reply, answer) = oneshot::channel();
        self.lock().waiting.push_back(Waiter { entry, reply, since: Instant::now() });
        self.pump();
        answer.await.unwrap_or_else(|_| Err(unavailable("the server is going down")))
    }

    async fn resolve(self: &Arc<Self>, name: Option<&str>) -> Result<Entry, ApiError> {
        let first = self.catalog.first();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let present = self.lock().present.as_ref().map(|present| present.entry.clone());
            return Ok(present.unwrap_or_else(|| first.clone()));
        };
        if first.name == name || first.aliases.iter().any(|alias| alias == name) {
            return Ok(first.clone());
        }
        let hub = Arc::clone(self);
        let entries = tokio::task::spawn_blocking(move || hub.entries()).await;
        let entries = entries.map_err(ApiError::internal)?;
        entries.iter().find(|entry| entry.name == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let message = format!("model {name:?} does not exist; there is {}", names.join(", "));
            ApiError {
                param: Some("model".into()),
                code: Some("model_not_found"),
                ..ApiError::new(ErrorKind::NotFound, message)
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What the mutex guards is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants what can be granted; starts the next change if the present model is not in use.
    fn pump(self: &Arc<Self>) {
        let mut granted = Vec::new();
        let mut state = self.lock();
        state.waiting.retain(|waiter| !waiter.reply.is_closed());
        if state.loading.is_none() {
            for waiter in state.take_grants() {
                state.active += 1;
                let Some(present) = &state.present else { continue };
                let lease = Lease { model: Arc::clone(&present.model), hub: Arc::clone(self) };
                granted.push((waiter.reply, lease));
            }
            let next = state.waiting.front().map(|waiter| waiter.entry.clone());
            if let Some(next) = next.filter(|_| state.active == 0) {
                if state.lingers() {
                    let hub = Arc::clone(self);
                    self.runtime.spawn(async move {
                        tokio::time::sleep(LINGER).await;
                        hub.pump();
                    });
                    return;
                }
                let progress = Arc::new(Progress::default());
                state.loading = Some((next.name.clone(), Arc::clone(&progress)));
                let previous = state.present.take();
                let hub = Arc::clone(self);
                self.runtime.spawn_blocking(move || hub.change(next, previous, &progress));
            }
        }
        drop(state);
        // A lease that finds nobody is dropped, and that takes the lock again.
        for (reply, lease) in granted {
            let _ = reply.send(Ok(lease));
        }
    }

    /// Frees the previous model, then loads `next`; if that fails, the previous one again.
    fn change(self: Arc<Self>, next: Entry, previous: Option<Present>, progress: &Arc<Progress>) {
        let before = previous.map(|present| {
            let entry = present.entry.clone();
            present.unload();
            entry
        });
        metrics::counter!("forge_model_loads_total").increment(1);
        let result = self.load(&next, progress);
        let mut refused = Vec::new();
        let mut reason = String::new();
        let present = match result {
            Ok(present) => Some(present),
            Err(error) => {
                reason = format!("{error:#}");
                tracing::error!(model = next.name, "cannot be loaded: {reason}");
                before.filter(|entry| entry.name != next.name).and_then(|entry| {
                    let again = self.load(&entry, &Arc::new(Progress::default()));
                    again.map_err(|e| tracing::error!(model = entry.name, "is lost: {e:#}")).ok()
                })
            }
        };
        {
            let mut state = self.lock();
            state.present = present;
            state.loading = None;
            if reason.is_empty() {
                state.failed = None;
            } else {
                state.failed = Some((next.name.clone(), reason.clone()));
                let (same, others) = std::mem::take(&mut state.waiting)
                    .into_iter()
                    .partition(|waiter| waiter.entry.name == next.name);
                state.waiting = others;
                refused = Vec::from(same);
            }
        }
        for waiter in refused {
            let message = format!("model {} cannot be loaded: {reason}", next.name);
            let _ = waiter.reply.send(Err(unavailable(&message)));
        }
        self.pump();
    }

    fn load(&self, entry: &Entry, progress: &Arc<Progress>) -> anyhow::Result<Present> {
        let start = Instant::now();
        let (model, thread) =
            LoadedModel::start(&entry.name, &entry.source, &self.settings, progress)?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(model = entry.name, seconds, "loaded");
        Ok(Present { entry: entry.clone(), model: Arc::new(model), thread, since: Instant::now() })
    }
}

impl Present {
    /// Ends the engine and waits until its memory is free.
    fn unload(self) {
        self.model.engine.stop();
        drop(self.model);
        if self.thread.join().is_err() {
            tracing::error!(model = self.entry.name, "its engine had panicked");
        }
    }
}

impl State {
    /// Whether the present model, though idle, is to be kept for a moment.
    fn lingers(&self) -> bool {
        let healthy = self.present.as_ref().is_some_and(|p| p.model.engine.fault().is_none());
        healthy && self.idle_since.is_some_and(|since| since.elapsed() < LINGER)
    }

    /// The waiting requests that the present model may take.
    fn take_grants(&mut self) -> Vec<Waiter> {
        let Some(present) = &self.present else { return Vec::new() };
        if present.model.engine.fault().is_some() {
            return Vec::new();
        }
        let (name, loaded) = (&present.entry.name, present.since);
        let other = self.waiting.iter().position(|waiter| waiter.entry.name != *name);
        let closes = other.map(|at| (at, self.waiting[at].since.max(loaded) + GROUP_WINDOW));
        let grouped = |index: usize, waiter: &Waiter| {
            closes.is_none_or(|(at, closes)| index < at || waiter.since < closes)
        };
        let granted: Vec<bool> = self
            .waiting
            .iter()
            .enumerate()
            .map(|(index, waiter)| waiter.entry.name == *name && grouped(index, waiter))
            .collect();
        let mut flags = granted.into_iter();
        let (grants, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|_| flags.next().unwrap_or_default());
        self.waiting = rest;
        Vec::from(grants)
    }
}

fn unavailable(message: &str) -> ApiError {
    ApiError { retry_after_s: Some(1), ..ApiError::new(ErrorKind::Unavailable, message) }
}
