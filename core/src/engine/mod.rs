//! The engine: requests in, tokens out. One thread owns it; [`Engine::step`] runs one pass over the
//! device: every decoding sequence gets a row, and the oldest prompts fill the rest of the pass.

pub mod block_pool;
mod constraint;
mod plan;
mod programs;
pub mod sampling;
mod schedule;
mod sequence;
pub mod service;

pub use constraint::{Allowed, TokenConstraint};
pub use plan::MemoryPlan;
pub use sampling::{SamplingParams, TokenLogprobs};
pub use sequence::{FinishReason, Request, Timing};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::{SequenceId, SlotId, TokenId};
use crate::kv::{BLOCK_TOKENS, KvType};
use crate::model::{Cache, CacheOptions, Model, PassShape, StepInputs, Workspace};
use crate::profile::{Metered, OpTotal, totals};
use block_pool::BlockPool;
use programs::Programs;
use sampling::Sampler;
use sequence::{Sequence, Status};
use std::collections::VecDeque;
use std::time::Instant;

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
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { context: None, slots: 1, kv_type: KvType::F16, max_rows: None }
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
    blocks: BlockPool,
    free_slots: Vec<SlotId>,
    waiting: VecDeque<(SequenceId, Request, Instant)>,
    running: Vec<Sequence>,
    next_id: u64,
    logits: Vec<f32>,
    events: Vec<Event>,
    profile: Profile,
    fault: Option<String>,
}

/// Profiling of single steps.
enum Profile {
    Off,
    /// The next pass is timed.
    Wanted,
    Done(Vec<OpTotal>),
}

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
        let cache = Cache::new(&backend, &model.config, options)?;
        let inputs = StepInputs::new(&backend, shape, plan.context.div_ceil(BLOCK_TOKENS))?;
        let work = Workspace::new(&backend, &model.config, shape)?;
        let mut engine = Self {
            logits: vec![0.0; model.config.vocab_size],
            blocks: BlockPool::new(plan.blocks),
            free_slots: (0..plan.slots as u32).rev().map(SlotId).collect(),
            backend,
            model,
            plan,
            cache,
            inputs,
            work,
            programs: Programs::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            next_id: 0,
            events: Vec::new(),
            profile: Profile::Off,
            fault: None,
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
        self.waiting.push_back((id, request, Instant::now()));
        Ok(id)
    }

    /// Ends a sequence wherever it is; all it held is free afterwards. Unknown ids are ignored.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bookkeeping is broken.
    pub fn cancel(&mut self, id: SequenceId) -> Result<()> {
        self.waiting.retain(|(waiting, ..)| *waiting != id);
        if let Some(index) = self.running.iter().position(|s| s.id == id) {
            let sequence = self.running.swap_remove(index);
            self.release(&sequence)?;
        }
        Ok(())
    }

    /// True if no request waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.iter().all(|s| s.status == Status::Kept)
    }

    /// KV blocks and state slots that nobody holds.
    pub fn free(&self) -> (usize, usize) {
        (self.blocks.free(), self.free_slots.len())
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
        self.admit()?;
        let planned = schedule::plan(&self.running, self.plan.max_rows);
        if !planned.is_empty() {
            self.run(&planned)?;
        }
        Ok(std::mem::take(&mut self.events))
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

    /// Moves waiting requests into slots while slots and blocks last.
    fn admit(&mut self) -> Result<()> {
        while let Some((id, mut request, submitted)) = self.waiting.pop_front() {
            let Some(sequence) = self.start(id, &mut request, submitted)? else {
                self.waiting.push_front((id, request, submitted));
                break;
            };
            self.running.push(sequence);
        }
        Ok(())
    }

    /// A running sequence for the request, or `None` if there is no room yet.
    fn start(
        &mut self,
        id: SequenceId,
        request: &mut Request,
        submitted: Instant,
    ) -> Result<Option<Sequence>> {
        let room = self.plan.context - request.prompt.len();
        let max_tokens = request.max_tokens.unwrap_or(room);
        let length = request.prompt.len() + max_tokens.min(room);
        let needed = length.div_ceil(BLOCK_TOKENS);
        let kept = self.take_kept(request)?;
        let (slot, mut blocks, computed) = match kept {
            Some(kept) => (kept.slot, kept.blocks, kept.computed),
            None => match self.free_slots.pop() {
                Some(slot) => (slot, Vec::new(), 0),
                None => return Ok(None),
            },
        };
        let missing = needed.saturating_sub(blocks.len());
        let Some(more) = self.blocks.allocate(missing) else {
            for block in blocks {
                self.blocks.release(block)?;
            }
            self.free_slots.push(slot);
            return Ok(None);
        };
        blocks.extend(more);
        Ok(Some(Sequence {
            id,
            slot,
            blocks,
            tokens: request.prompt.clone(),
            computed,
            status: Status::Prefill,
            sampler: Sampler::new(request.sampling.clone()),
            max_tokens,
            stop_tokens: request.stop_tokens.clone(),
            keep: request.keep,
            constraint: request.constraint.take(),
            logprobs: request.logprobs,
            timing: Timing {
                prompt_tokens: request.prompt.len(),
                reused_tokens: computed,
                ..Timing::default()
            },
            submitted,
            first_token: None,
        }))
    }

    /// The kept sequence that the request continues, or `None` after releasing one that does not
    /// fit. At least one prompt token is always computed: it gives the logits.
    fn take_kept(&mut self, request: &Request) -> Result<Option<Sequence>> {
        let wanted = request.continue_from;
        let index =
            self.running.iter().position(|s| Some(s.id) == wanted && s.status == Status::Kept);
        let Some(index) = index else { return Ok(None) };
        let kept = self.running.swap_remove(index);
        let computed = kept.tokens.get(..kept.computed).unwrap_or(&[]);
        if request.prompt.len() > computed.len() && request.prompt.starts_with(computed) {
            return Ok(Some(kept));
        }
        self.release(&kept)?;
        Ok(None)
    }

    fn release(&mut self, sequence: &Sequence) -> Result<()> {
        for block in &sequence.blocks {
            self.blocks.release(*block)?;
        }
        self.free_slots.push(sequence.slot);
        Ok(())
    }

    /// Runs the planned rows and takes in their results.
    fn run(&mut self, planned: &[schedule::Planned]) -> Result<()> {
        let batch = schedule::batch(&self.running, planned);
        let shape = schedule::shape(&batch, self.inputs.shape, &self.backend.info().row_buckets);
        let inputs = self.inputs.view(shape)?;
        let (backend, model) = (&self.backend, &self.model);
        let (work, cache) = (&self.work, &mut self.cache);
        inputs.write(backend, &batch)?;
        if matches!(self.profile, Profile::Wanted) {
            let context = batch.sequences.iter().map(|s| s.length as usize).sum();
            let mut work = work.view(shape)?;
            let mut records = Vec::new();
            let program = backend.record(|pass| {
                let mut metered = Metered::new(pass, context);
                model.forward(&mut metered, &inputs, &mut work, cache)?;
                records = metered.finish()?;
                Ok(())
            })?;
            let times = backend.op_times(&program)?;
            self.profile = Profile::Done(totals(&records, &times));
        } else {
            let program = self.programs.get_or_record(shape, || {
                let mut work = work.view(shape)?;
                backend.record(|pass| model.forward(pass, &inputs, &mut work, cache))
            })?;
            backend.submit(program)?;
        }
        let tokens = if batch.out_rows.is_empty() {
            Vec::new()
        } else {
            let mut tokens = vec![0i32; batch.out_rows.len()];
            backend.read(&self.work.tokens, bytemuck::cast_slice_mut(&mut tokens))?;
            tokens
        };
        let mut output = 0;
        for planned in planned {
            let sequence = &mut self.running[planned.index];
            sequence.computed += planned.rows;
            if sequence.status == Status::Prefill {
                self.events.push(Event::Prefill {
                    id: sequence.id,
                    done: sequence.computed,
                    reused: sequence.timing.reused_tokens,
                    total: sequence.timing.prompt_tokens,
                });
            }
            if planned.outputs > 0 {
                sequence.status = Status::Decode;
                self.choose(planned.index, output, tokens[output])?;
                output += 1;
            }
        }
        self.retire()
    }

    /// Chooses the next token of running sequence `index` from output row `output`.
    fn choose(&mut self, index: usize, output: usize, argmax: i32) -> Result<()> {
        let sequence = &mut self.running[index];
        let position = sequence.computed as u32;
        let chosen = if argmax < 0 {
            Err(Error::NotFinite { position, detail: "NaN".into() })
        } else {
            let row = self.work.logits.row_range(output..output + 1)?;
            let (backend, logits) = (&self.backend, &mut self.logits);
            sequence.choose(TokenId(argmax as u32), logits, |logits| {
                backend.read(&row, bytemuck::cast_slice_mut(logits))
            })
        };
        let id = sequence.id;
        match chosen {
            Ok((token, logprobs)) => {
                let reason = sequence.accept(token, self.plan.context);
                if reason != Some(FinishReason::Stop) {
                    self.events.push(Event::Token { id, token, logprobs });
                }
                if let Some(reason) = reason {
                    sequence.status = Status::Kept;
                    self.events.push(Event::Finished { id, reason, timing: sequence.timing });
                }
            }
            Err(error) => {
                sequence.status = Status::Kept;
                sequence.keep = false;
                self.events.push(Event::Failed { id, error });
            }
        }
        Ok(())
    }

    /// Frees what ended sequences hold, unless they are kept.
    fn retire(&mut self) -> Result<()> {
        let mut index = 0;
        while let Some(sequence) = self.running.get(index) {
            if sequence.status == Status::Kept && !sequence.keep {
                let sequence = self.running.remove(index);
                self.release(&sequence)?;
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}
