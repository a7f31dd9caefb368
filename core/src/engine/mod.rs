//! The engine: requests in, tokens out. One thread owns it; [`Engine::step`] runs one pass over the
//! device: every decoding sequence gets a row, and prompts fill up to a budget that measured costs
//! set, so that a long prompt does not hold up the streams.
//!
//! What a request can take from an earlier one is found in the prefix cache when it is admitted, and
//! what later ones may take is saved where its prefill is cut, and at its end.

mod admit;
pub mod block_pool;
mod constraint;
mod costs;
mod disk;
mod host;
mod persist;
mod plan;
mod preempt;
mod programs;
mod run;
pub mod sampling;
mod schedule;
mod sequence;
pub mod service;
mod snapshots;
mod stats;
mod transfers;

pub use constraint::{Allowed, TokenConstraint};
pub use plan::MemoryPlan;
pub use sampling::{SamplingParams, TokenLogprobs};
pub use sequence::{FinishReason, Request, Timing};
pub use stats::{EngineStats, Histogram};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::{SequenceId, SlotId, TokenId};
use crate::kv::{BLOCK_TOKENS, KvType};
use crate::model::{Cache, CacheOptions, Model, PassShape, StepInputs, Workspace};
use crate::prefix::{PrefixCache, PrefixOptions, Transfer};
use crate::profile::OpTotal;
use block_pool::BlockPool;
use costs::StepCosts;
use disk::Disk;
use host::HostStore;
use programs::Programs;
use sequence::{Sequence, Status};
use std::collections::VecDeque;
use std::time::Instant;
use transfers::Transfers;

/// Sizes of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Longest sequence in tokens; `None` = what the model and the memory allow, within reason.
    pub context: Option<usize>,
    /// Sequences at once.
    pub slots: usize,
    /// Storage of keys and values.
    pub kv_type: KvType,
    /// Most rows of a pass; `None` = the device's choice.
    pub max_rows: Option<usize>,
    /// Keep prefixes of earlier requests.
    pub prefix_cache: bool,
    /// Device memory for keys, values and snapshots in bytes, at least one context; `None` = a full
    /// context for every slot and a share of what is left.
    pub cache_bytes: Option<u64>,
    /// Host memory for what leaves the device, in bytes.
    pub host_cache_bytes: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context: None,
            slots: 1,
            kv_type: KvType::F16,
            max_rows: None,
            prefix_cache: true,
            cache_bytes: None,
            host_cache_bytes: 0,
        }
    }
}

/// What happened in a step.
#[derive(Debug)]
pub enum Event {
    /// Prompt tokens of a sequence that are done.
    Prefill {
        /// Sequence.
        id: SequenceId,
        /// Tokens done.
        done: usize,
        /// Those of them that the cache held.
        reused: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token was generated. Stop tokens are not reported.
    Token {
        /// Sequence.
        id: SequenceId,
        /// Token.
        token: TokenId,
        /// Log-probabilities, if the request asked for them.
        logprobs: Option<TokenLogprobs>,
    },
    /// The sequence ended.
    Finished {
        /// Sequence.
        id: SequenceId,
        /// Why.
        reason: FinishReason,
        /// Figures.
        timing: Timing,
    },
    /// The sequence failed; the others go on.
    Failed {
        /// Sequence.
        id: SequenceId,
        /// Cause.
        error: Error,
    },
}

/// Engine over a backend.
pub struct Engine<B: Backend> {
    backend: B,
    model: Model<B>,
    plan: MemoryPlan,
    cache: Cache<B>,
    inputs: StepInputs<B>,
    work: Workspace<B>,
    programs: Programs<B>,
    transfers: Transfers<B>,
    blocks: BlockPool,
    free_slots: Vec<SlotId>,
    prefix: Option<PrefixCache>,
    host: HostStore,
    fetch: Option<Fetch>,
    disk: Option<Disk>,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    next_id: u64,
    logits: Vec<f32>,
    events: Vec<Event>,
    profile: Profile,
    fault: Option<String>,
    costs: StepCosts,
    /// Passes since the last one with prompt rows.
    since_chunk: usize,
    /// The last pass gave no tokens, so its time falls into the next one.
    unsettled: bool,
    /// Seconds to compute a prompt token, once measured, and bytes per second from the host.
    seconds_per_token: Option<f64>,
    host_bandwidth: f64,
    started: Instant,
    stats: EngineStats,
}

/// A snapshot on its way from the host, for a waiting sequence.
struct Fetch {
    transfer: Transfer,
    done: usize,
}

/// Profiling of single steps.
enum Profile {
    Off,
    /// The next pass is timed.
    Wanted,
    Done(Vec<OpTotal>),
}

/// Time to compute a prompt token before one was measured: long, so that what was saved is used.
const FIRST_SECONDS_PER_TOKEN: f64 = 1e-3;

/// Speed of copies from the host before one was measured: a slow bus.
const FIRST_HOST_BANDWIDTH: f64 = 4e9;

impl<B: Backend> Engine<B> {
    /// Allocates everything the engine will ever use.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the plan does not fit; device errors.
    pub fn new(backend: B, model: Model<B>, options: &EngineOptions) -> Result<Self> {
        let plan =
            MemoryPlan::new::<B>(&model.config, backend.info(), model.weight_bytes, options)?;
        Self::with_plan(backend, model, plan)
    }

    /// An engine of exactly the planned sizes.
    ///
    /// # Errors
    /// Allocation errors.
    pub fn with_plan(backend: B, model: Model<B>, plan: MemoryPlan) -> Result<Self> {
        let shape = PassShape { rows: plan.max_rows, sequences: plan.slots, outputs: plan.slots };
        let options =
            CacheOptions { blocks: plan.blocks, slots: plan.slots, kv_type: plan.kv_type };
        let mut cache = Cache::new(&backend, &model.config, options)?;
        let inputs = StepInputs::new(&backend, shape, plan.context.div_ceil(BLOCK_TOKENS))?;
        let work = Workspace::new(&backend, &model.config, shape)?;
        let transfers = Transfers::new(&backend, &mut cache, plan.transfer_sizes())?;
        let prefix = plan
            .prefix_cache
            .then(|| PrefixCache::new(PrefixOptions::new(plan.snapshot_blocks, plan.host_blocks)));
        let mut engine = Self {
            logits: vec![0.0; model.config.vocab_size],
            blocks: BlockPool::new(plan.blocks),
            free_slots: (0..plan.slots as u32).rev().map(SlotId).collect(),
            host: HostStore::new(plan.host_blocks, transfers.block_bytes()),
            backend,
            model,
            plan,
            cache,
            inputs,
            work,
            programs: Programs::new(),
            transfers,
            prefix,
            fetch: None,
            disk: None,
            waiting: VecDeque::new(),
            running: Vec::new(),
            next_id: 0,
            events: Vec::new(),
            profile: Profile::Off,
            fault: None,
            costs: StepCosts::default(),
            since_chunk: 0,
            unsettled: false,
            seconds_per_token: None,
            host_bandwidth: FIRST_HOST_BANDWIDTH,
            started: Instant::now(),
            stats: EngineStats::default(),
        };
        engine.record_all()?;
        Ok(engine)
    }

    /// Records the program of every shape a step can have, largest first, so that nothing is
    /// allocated or recorded once requests run. Without row buckets there is no such list.
    fn record_all(&mut self) -> Result<()> {
        let shapes = schedule::shapes(self.inputs.shape, &self.backend.info().row_buckets);
        for shape in shapes {
            let inputs = self.inputs.view(shape)?;
            self.programs.get_or_record(shape, || {
                let mut work = self.work.view(shape)?;
                let (model, cache) = (&self.model, &mut self.cache);
                self.backend.record(|pass| model.forward(pass, &inputs, &mut work, cache))
            })?;
        }
        Ok(())
    }

    /// The error that made the engine unusable, if there was one.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The memory plan.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// The model.
    pub fn model(&self) -> &Model<B> {
        &self.model
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Queues a request.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty prompt, a prompt that leaves no room for an answer, a token
    /// outside the vocabulary, or sampling parameters out of range.
    pub fn submit(&mut self, request: Request) -> Result<SequenceId> {
        request.sampling.check()?;
        if request.prompt.is_empty() {
            return Err(Error::invalid("prompt", "is empty"));
        }
        if request.prompt.len() >= self.plan.context {
            return Err(Error::invalid(
                "prompt",
                format!(
                    "{} tokens do not fit a context of {} with room for an answer",
                    request.prompt.len(),
                    self.plan.context
                ),
            ));
        }
        let vocabulary = self.model.config.vocab_size;
        if let Some(token) = request.prompt.iter().find(|t| t.index() >= vocabulary) {
            return Err(Error::invalid("prompt", format!("token {token} of {vocabulary}")));
        }
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        self.waiting.push_back(Sequence::new(id, request));
        Ok(id)
    }

    /// Ends a sequence wherever it is. What it computed stays in the prefix cache; everything else it
    /// held is free afterwards. Unknown ids are ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bookkeeping is broken; device errors.
    pub fn cancel(&mut self, id: SequenceId) -> Result<()> {
        let index = self.waiting.iter().position(|s| s.id == id);
        if let Some(mut sequence) = index.and_then(|index| self.waiting.remove(index)) {
            self.stats.finished += 1;
            self.unpark(&mut sequence)?;
        }
        if let Some(index) = self.running.iter().position(|s| s.id == id) {
            let sequence = self.running.remove(index);
            self.stats.finished += 1;
            self.leave(sequence)?;
        }
        Ok(())
    }

    /// True if no request waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// KV blocks and state slots that nobody holds; blocks of the prefix cache count as held.
    pub fn free(&self) -> (usize, usize) {
        (self.blocks.free(), self.free_slots.len())
    }

    /// KV blocks that no request holds: free ones, and those of the prefix cache, which give way. Blocks
    /// that a request shares with the cache count as well.
    pub fn available_blocks(&self) -> usize {
        self.blocks.free() + self.prefix.as_ref().map_or(0, PrefixCache::device_blocks)
    }

    /// What the engine counted, and what holds now.
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            waiting: self.waiting.len(),
            running: self.running.len(),
            slots: self.plan.slots,
            blocks: self.blocks.len(),
            free_blocks: self.blocks.free(),
            block_bytes: self.transfers.block_bytes(),
            host_blocks: self.plan.host_blocks,
            snapshot_blocks: self.plan.snapshot_blocks,
            disk_bytes: self.disk.as_ref().map_or(0, Disk::bytes),
            disk_errors: self.disk.as_ref().map_or(0, |disk| disk.errors),
            prefix: self.prefix.as_ref().map(PrefixCache::stats).unwrap_or_default(),
            ..self.stats.clone()
        }
    }

    /// Drops everything that the prefix cache holds.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bookkeeping is broken.
    pub fn clear_cache(&mut self) -> Result<()> {
        match &mut self.prefix {
            Some(prefix) => prefix.clear(&mut self.blocks),
            None => Ok(()),
        }
    }

    /// Runs one pass and returns what happened. Does nothing when idle.
    ///
    /// # Errors
    /// Device errors: every later step fails with the same text ([`Engine::fault`]).
    pub fn step(&mut self) -> Result<Vec<Event>> {
        if let Some(fault) = &self.fault {
            return Err(Error::device("step", fault));
        }
        let result = self.advance();
        if let Err(error) = &result {
            self.fault = Some(error.to_string());
        }
        result
    }

    fn advance(&mut self) -> Result<Vec<Event>> {
        if let Some(prefix) = &mut self.prefix {
            prefix.tick(self.started.elapsed().as_secs_f64());
        }
        self.admit()?;
        let planned = self.plan_rows()?;
        if !planned.is_empty() {
            self.run(&planned)?;
        }
        // Copies to the host wait for the device: they have their time where no stream does, and
        // where memory runs short, before something is lost that was never copied.
        let streams = self.running.iter().any(|s| s.status == Status::Decode);
        if !streams || self.blocks.free() < self.blocks.len() / 8 {
            self.write_through()?;
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Does a piece of the work that waits for idle time: copies to the host tier and the disk. True if more of it
    /// is left.
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn maintain(&mut self) -> Result<bool> {
        if let Some(fault) = &self.fault {
            return Err(Error::device("maintain", fault));
        }
        let result = self.take_disk_results(false).and_then(|()| self.write_through());
        if let Err(error) = &result {
            self.fault = Some(error.to_string());
        }
        Ok(result? || self.persist())
    }

    /// Runs one step with a timer around every op; the tokens are the same. Returns the events and
    /// the ops, longest first. Timers cost time themselves, most of all on short ops.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a backend without timers; device errors.
    pub fn profile_step(&mut self) -> Result<(Vec<Event>, Vec<OpTotal>)> {
        self.profile = Profile::Wanted;
        let events = self.step();
        match std::mem::replace(&mut self.profile, Profile::Off) {
            Profile::Done(ops) => Ok((events?, ops)),
            Profile::Off | Profile::Wanted => Ok((events?, Vec::new())),
        }
    }

    /// Expected seconds to compute a prompt token.
    fn token_cost(&self) -> f64 {
        self.seconds_per_token.unwrap_or(FIRST_SECONDS_PER_TOKEN)
    }

    /// Gives back the slot and the blocks of a sequence that leaves the device.
    fn release(&mut self, sequence: &mut Sequence) -> Result<()> {
        for block in sequence.blocks.drain(..) {
            self.blocks.release(block)?;
        }
        self.free_slots.push(sequence.slot);
        Ok(())
    }
}
