//! An engine behind a channel: one thread owns and steps it, any thread submits and cancels.
//!
//! The thread waits for no lock and no reader. A reader that is slow or gone costs its own request
//! at most; a device error ends all of them, and says so to everyone who asks later.

use super::{Engine, EngineStats, Event, FinishReason, Request, Timing, TokenLogprobs};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::{SequenceId, TokenId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time between two publications of the engine's figures.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// What happens to one request.
#[derive(Debug)]
pub enum StreamEvent {
    /// Prompt tokens that are done.
    Prefill {
        /// Tokens done.
        done: usize,
        /// Those of them that the cache held.
        reused: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token.
    Token {
        /// Token.
        token: TokenId,
        /// Log-probabilities, if the request asked for them.
        logprobs: Option<TokenLogprobs>,
    },
    /// The last event of a request that ended well.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Figures.
        timing: Timing,
    },
    /// The last event of a request that failed.
    Failed(Error),
}

/// Takes the events of one request; `false` = nobody reads them any more. Called on the engine's
/// thread, so it must not wait.
pub type Sink = Box<dyn FnMut(StreamEvent) -> bool + Send>;

/// A submitted request. Dropping it cancels the request; the default one belongs to none.
#[derive(Debug, Default)]
pub struct Ticket(Arc<AtomicBool>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Requests that wait or run.
    pub requests: usize,
    /// State slots that nobody holds.
    pub free_slots: usize,
    /// KV blocks that no request holds; those of the prefix cache give way when they are needed.
    pub free_blocks: usize,
}

/// What both sides see.
#[derive(Debug, Default)]
struct Shared {
    requests: AtomicUsize,
    free_slots: AtomicUsize,
    free_blocks: AtomicUsize,
    fault: OnceLock<String>,
    /// The engine's figures. The engine skips a turn when a reader holds the lock.
    stats: Mutex<EngineStats>,
}

enum Command {
    Submit { request: Box<Request>, sink: Sink, cancelled: Arc<AtomicBool> },
    Stop,
}

/// The side that submits; clones share one engine. When the last one is gone, the engine stops.
#[derive(Clone, Debug)]
pub struct EngineClient {
    commands: SyncSender<Command>,
    shared: Arc<Shared>,
}

/// The side that runs, on a thread of its own.
pub struct EngineWorker {
    commands: Receiver<Command>,
    shared: Arc<Shared>,
}

/// The two sides. At most `capacity` requests lie between them.
pub fn service(capacity: usize) -> (EngineClient, EngineWorker) {
    let (sender, receiver) = sync_channel(capacity.max(1));
    let shared = Arc::new(Shared::default());
    let client = EngineClient { commands: sender, shared: Arc::clone(&shared) };
    (client, EngineWorker { commands: receiver, shared })
}

impl EngineClient {
    /// Hands a request to the engine. Its events go to `sink`, a refusal too.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if too many requests lie before the engine; [`Error::Device`] if it
    /// has stopped.
    pub fn submit(&self, request: Request, sink: Sink) -> Result<Ticket> {
        let cancelled = Arc::new(AtomicBool::new(false));
        let command =
            Command::Submit { request: Box::new(request), sink, cancelled: Arc::clone(&cancelled) };
        match self.commands.try_send(command) {
            Ok(()) => Ok(Ticket(cancelled)),
            Err(TrySendError::Full(_)) => {
                Err(Error::unsupported("request", "the engine's queue is full"))
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(Error::device("engine", self.fault().unwrap_or("it has stopped")))
            }
        }
    }

    /// How busy the engine is; never waits for it.
    pub fn stats(&self) -> ServiceStats {
        ServiceStats {
            requests: self.shared.requests.load(Ordering::Relaxed),
            free_slots: self.shared.free_slots.load(Ordering::Relaxed),
            free_blocks: self.shared.free_blocks.load(Ordering::Relaxed),
        }
    }

    /// What the engine counted, a fraction of a second ago.
    pub fn engine_stats(&self) -> EngineStats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The error that ended the engine, if one did.
    pub fn fault(&self) -> Option<&str> {
        self.shared.fault.get().map(String::as_str)
    }

    /// Asks the engine to stop once the requests that it has are done.
    pub fn stop(&self) {
        // A full channel belongs to an engine with work; dropping the clients stops it as well.
        let _ = self.commands.try_send(Command::Stop);
    }
}

/// A request that the engine has.
struct Stream {
    sink: Sink,
    cancelled: Arc<AtomicBool>,
}

/// Says that the engine ended, however it did.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.fault.set("the engine's thread panicked".to_owned());
        }
        self.0.requests.store(0, Ordering::Relaxed);
    }
}

impl EngineWorker {
    /// Runs `engine` until every client is gone, one of them asks it to stop, or the device fails.
    /// A stop lets running requests end; lost clients do not.
    pub fn run<B: Backend>(self, mut engine: Engine<B>) {
        let guard = EndGuard(Arc::clone(&self.shared));
        let mut streams: HashMap<SequenceId, Stream> = HashMap::new();
        let mut stopping = false;
        let mut published = None;
        loop {
            self.publish(&engine, streams.len(), &mut published);
            match self.take_commands(&mut engine, &mut streams, stopping) {
                Next::Gone => break,
                Next::Stop => stopping = true,
                Next::Work => {}
            }
            if stopping && streams.is_empty() {
                if let Err(error) = engine.flush_cache() {
                    tracing::warn!("the prefix cache was not saved: {error}");
                }
                break;
            }
            if let Err(error) = advance(&mut engine, &mut streams) {
                let text = error.to_string();
                let _ = guard.0.fault.set(text.clone());
                tracing::error!("the engine failed: {text}");
                for (_, mut stream) in streams.drain() {
                    (stream.sink)(StreamEvent::Failed(Error::device("engine", &text)));
                }
                break;
            }
        }
    }

    fn publish<B: Backend>(
        &self,
        engine: &Engine<B>,
        requests: usize,
        published: &mut Option<Instant>,
    ) {
        let due = published.is_none_or(|at: Instant| requests == 0 || at.elapsed() > PUBLISH_EVERY);
        if due && let Ok(mut stats) = self.shared.stats.try_lock() {
            *stats = engine.stats();
            *published = Some(Instant::now());
        }
        let (_, slots) = engine.free();
        let blocks = engine.available_blocks();
        self.shared.requests.store(requests, Ordering::Relaxed);
        self.shared.free_slots.store(slots, Ordering::Relaxed);
        self.shared.free_blocks.store(blocks, Ordering::Relaxed);
    }

    /// Takes in what lies in the channel; waits for something if there is nothing else to do.
    fn take_commands<B: Backend>(
        &self,
        engine: &mut Engine<B>,
        streams: &mut HashMap<SequenceId, Stream>,
        stopping: bool,
    ) -> Next {
        loop {
            let idle = streams.is_empty() && !stopping;
            let command = match self.commands.try_recv() {
                // Nothing to answer: time for the copies that wait for it, one at a time.
                Err(TryRecvError::Empty) if idle => match engine.maintain() {
                    Ok(true) => continue,
                    // A fault shows in the next step; until then there is nothing to wait for.
                    Ok(false) => self.commands.recv().map_err(|_| TryRecvError::Disconnected),
                    Err(_) => return Next::Work,
                },
                command => command,
            };
            match command {
                Ok(Command::Submit { request, mut sink, cancelled }) => {
                    match engine.submit(*request) {
                        Ok(id) => {
                            streams.insert(id, Stream { sink, cancelled });
                        }
                        Err(error) => {
                            sink(StreamEvent::Failed(error));
                        }
                    }
                }
                Ok(Command::Stop) => return Next::Stop,
                Err(TryRecvError::Empty) => return Next::Work,
                Err(TryRecvError::Disconnected) => return Next::Gone,
            }
        }
    }
}

/// What the commands ask for.
enum Next {
    Work,
    Stop,
    Gone,
}

/// Cancels what nobody wants any more, and runs one step.
fn advance<B: Backend>(
    engine: &mut Engine<B>,
    streams: &mut HashMap<SequenceId, Stream>,
) -> Result<()> {
    let mut dead: Vec<SequenceId> = streams
        .iter()
        .filter(|(_, stream)| stream.cancelled.load(Ordering::Acquire))
        .map(|(id, _)| *id)
        .collect();
    cancel(engine, streams, &mut dead)?;
    for event in engine.step()? {
        let (id, event, last) = match event {
            Event::Prefill { id, done, reused, total } => {
                (id, StreamEvent::Prefill { done, reused, total }, false)
            }
            Event::Token { id, token, logprobs } => {
                (id, StreamEvent::Token { token, logprobs }, false)
            }
            Event::Finished { id, reason, timing } => {
                (id, StreamEvent::Finished { reason, timing }, true)
            }
            Event::Failed { id, error } => (id, StreamEvent::Failed(error), true),
        };
        let Some(stream) = streams.get_mut(&id) else { continue };
        let read = (stream.sink)(event);
        if last {
            streams.remove(&id);
        } else if !read {
            dead.push(id);
        }
    }
    cancel(engine, streams, &mut dead)
}

fn cancel<B: Backend>(
    engine: &mut Engine<B>,
    streams: &mut HashMap<SequenceId, Stream>,
    dead: &mut Vec<SequenceId>,
) -> Result<()> {
    for id in dead.drain(..) {
        if streams.remove(&id).is_some() {
            engine.cancel(id)?;
        }
    }
    Ok(())
}
