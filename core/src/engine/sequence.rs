//! One request inside the engine.

use super::constraint::{Allowed, TokenConstraint};
use super::sampling::{Sampler, SamplingParams, TokenLogprobs};
use crate::error::Result;
use crate::ids::{BlockId, SequenceId, SlotId, TokenId};
use crate::prefix::Boundary;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What to generate.
#[derive(Debug)]
pub struct Request {
    /// Prompt, at least one token.
    pub prompt: Vec<TokenId>,
    /// How to choose tokens.
    pub sampling: SamplingParams,
    /// Most tokens to generate; `None` = until the context is full.
    pub max_tokens: Option<usize>,
    /// Tokens that end the generation (and are not part of the answer).
    pub stop_tokens: Vec<TokenId>,
    /// Positions in the prompt that later prompts will share up to: ends of the system message and
    /// of the last message. Prefill stops there to save the state.
    pub boundaries: Vec<Boundary>,
    /// Prompts with different salts share nothing in the cache.
    pub salt: u64,
    /// Save the state at the end of the answer: the next prompt will hold the answer as it was
    /// generated.
    pub remember: bool,
    /// A rule that every token must obey.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// Report log-probabilities: of the chosen token and of this many of the most likely.
    pub logprobs: Option<usize>,
}

impl Request {
    /// A greedy request for `prompt` until the context is full, remembered.
    pub fn new(prompt: Vec<TokenId>) -> Self {
        Self {
            prompt,
            sampling: SamplingParams::default(),
            max_tokens: None,
            stop_tokens: Vec::new(),
            boundaries: Vec::new(),
            salt: 0,
            remember: true,
            constraint: None,
            logprobs: None,
        }
    }
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token.
    Stop,
    /// `max_tokens`.
    Length,
    /// The context is full.
    Context,
    /// Cancelled by its owner.
    Cancelled,
}

/// Where the time of a sequence went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that were already in the cache.
    pub reused_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// From submission to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

impl Timing {
    /// Prompt tokens computed per second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.reused_tokens, self.prefill)
    }
    /// Tokens per second after the first.
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

/// Progress of a sequence in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Prompt tokens are still to be computed.
    Prefill,
    /// One token a step.
    Decode,
    /// Nothing is left to do.
    Ended,
}

/// What a preempted sequence left in host memory.
#[derive(Debug)]
pub(super) struct Parked {
    /// Host blocks of its keys and values.
    pub(super) kv: Vec<BlockId>,
    /// Host blocks of its state.
    pub(super) state: Vec<BlockId>,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    /// State slot; meaningless while waiting.
    pub(super) slot: SlotId,
    pub(super) blocks: Vec<BlockId>,
    /// Prompt and generated tokens.
    pub(super) tokens: Vec<TokenId>,
    /// Tokens whose KV and state are on the device, or parked.
    pub(super) computed: usize,
    pub(super) status: Status,
    pub(super) sampler: Sampler,
    pub(super) max_tokens: usize,
    pub(super) stop_tokens: Vec<TokenId>,
    pub(super) boundaries: Vec<Boundary>,
    pub(super) salt: u64,
    pub(super) remember: bool,
    pub(super) constraint: Option<Box<dyn TokenConstraint>>,
    pub(super) logprobs: Option<usize>,
    /// Where prefill stops to save a snapshot, ascending.
    pub(super) cuts: VecDeque<Boundary>,
    pub(super) parked: Option<Parked>,
    /// A prefix was asked of the disk.
    pub(super) read_from_disk: bool,
    /// Number of the last pass with prompt rows of it.
    pub(super) last_chunk: u64,
    pub(super) timing: Timing,
    pub(super) submitted: Instant,
    pub(super) started: Option<Instant>,
    pub(super) first_token: Option<Instant>,
    pub(super) last_token: Option<Instant>,
}

impl Sequence {
    /// A waiting sequence.
    pub(super) fn new(id: SequenceId, request: Request) -> Self {
        Self {
            id,
            slot: SlotId(0),
            blocks: Vec::new(),
            computed: 0,
            status: Status::Prefill,
            sampler: Sampler::new(request.sampling),
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            stop_tokens: request.stop_tokens,
            boundaries: request.boundaries,
            salt: request.salt,
            remember: request.remember,
            constraint: request.constraint,
            logprobs: request.logprobs,
            cuts: VecDeque::new(),
            parked: None,
            read_from_disk: false,
            last_chunk: 0,
            timing: Timing { prompt_tokens: request.prompt.len(), ..Timing::default() },
            tokens: request.prompt,
            submitted: Instant::now(),
            started: None,
            first_token: None,
            last_token: None,
        }
    }

    /// Tokens that are still to be computed.
    pub(super) fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Rows that a pass may compute before the next cut.
    pub(super) fn rows_to_cut(&self) -> usize {
        let cut = self.cuts.front().map_or(usize::MAX, |cut| cut.position);
        self.pending().min(cut.saturating_sub(self.computed))
    }

    /// Chooses the next token: `argmax`, the device's choice, if nothing asks for more. `read`
    /// fetches the logits into `logits` and is called only when they are needed.
    pub(super) fn choose(
        &mut self,
        argmax: TokenId,
        logits: &mut [f32],
        read: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<(TokenId, Option<TokenLogprobs>)> {
        let allowed = match &mut self.constraint {
            Some(constraint) => constraint.allowed()?,
            None => Allowed::Any,
        };
        let plain = match allowed {
            Allowed::Any if self.sampler.is_plain_greedy() => Some(argmax),
            Allowed::Only(token) => Some(token),
            _ => None,
        };
        let mask = if let Allowed::Mask(mask) = allowed { Some(mask) } else { None };
        let position = self.computed as u32;
        let chosen = match (plain, self.logprobs) {
            (Some(token), None) => (token, None),
            (Some(token), Some(top)) => {
                read(logits)?;
                (token, Some(TokenLogprobs::of(logits, token, top)))
            }
            (None, None) => {
                read(logits)?;
                (self.sampler.sample(logits, mask, position)?, None)
            }
            (None, Some(top)) => {
                read(logits)?;
                let raw = logits.to_vec();
                let token = self.sampler.sample(logits, mask, position)?;
                (token, Some(TokenLogprobs::of(&raw, token, top)))
            }
        };
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(chosen.0)?;
        }
        Ok(chosen)
    }

    /// Notes a generated token; tells why the sequence ends with it, if it does. `context` is the
    /// longest sequence the engine holds.
    pub(super) fn accept(&mut self, token: TokenId, context: usize) -> Option<FinishReason> {
        let now = Instant::now();
        let first = *self.first_token.get_or_insert(now);
        self.timing.prefill = first - self.submitted;
        self.timing.decode = now - first;
        if self.stop_tokens.contains(&token) {
            return Some(FinishReason::Stop);
        }
        self.timing.generated_tokens += 1;
        self.sampler.accept(token);
        self.tokens.push(token);
        if self.timing.generated_tokens >= self.max_tokens {
            return Some(FinishReason::Length);
        }
        (self.tokens.len() >= context).then_some(FinishReason::Context)
    }
}
