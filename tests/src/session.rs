//! The engine as a caller sees it: requests in, answers out.

use forge_core::backend::Backend;
use forge_core::engine::{Engine, EngineOptions, Event, FinishReason, Request, Timing};
use forge_core::model::load;
use forge_core::weights::Checkpoint;
use forge_core::{Error, Result, SequenceId, TokenId};

/// What became of a request.
#[derive(Debug)]
pub struct Answer {
    /// Tokens, without a stop token.
    pub tokens: Vec<TokenId>,
    /// How it ended.
    pub end: Result<(FinishReason, Timing)>,
}

/// An engine with a model.
pub struct Session<B: Backend> {
    /// Engine.
    pub engine: Engine<B>,
}

impl<B: Backend> Session<B> {
    /// Loads a checkpoint.
    ///
    /// # Errors
    /// Those of the loader and the engine.
    pub fn new(backend: B, checkpoint: &Checkpoint, options: &EngineOptions) -> Result<Self> {
        let model = load(&backend, checkpoint, &mut |_| ())?;
        Ok(Self { engine: Engine::new(backend, model, options)? })
    }

    /// Greedy continuations of prompts, each with its number of tokens, all queued at once. Nothing
    /// stops them early.
    ///
    /// # Errors
    /// A refused prompt; device errors.
    pub fn greedy(&mut self, prompts: &[(&[TokenId], usize)]) -> Result<Vec<Answer>> {
        let requests = prompts.iter().map(|(prompt, count)| greedy_request(prompt, *count));
        self.run(requests.collect())
    }

    /// Runs requests to their ends.
    ///
    /// # Errors
    /// A refused request; device errors.
    ///
    /// # Panics
    /// If the engine holds on to blocks or slots of ended requests, or forgets a request.
    pub fn run(&mut self, requests: Vec<Request>) -> Result<Vec<Answer>> {
        let held = self.held();
        let ids =
            requests.into_iter().map(|r| self.engine.submit(r)).collect::<Result<Vec<_>>>()?;
        let mut tokens = vec![Vec::new(); ids.len()];
        let mut ends: Vec<Option<Result<_>>> = ids.iter().map(|_| None).collect();
        while !self.engine.is_idle() {
            for event in self.engine.step()? {
                let index = |id| ids.iter().position(|known| *known == id).unwrap();
                match event {
                    Event::Prefill { .. } => {}
                    Event::Token { id, token, .. } => tokens[index(id)].push(token),
                    Event::Finished { id, reason, timing } => {
                        ends[index(id)] = Some(Ok((reason, timing)));
                    }
                    Event::Failed { id, error } => ends[index(id)] = Some(Err(error)),
                }
            }
        }
        assert_eq!(self.held(), held, "blocks or slots leaked");
        let forgotten = || Err(Error::invalid("request", "the engine forgot it"));
        let answers = tokens.into_iter().zip(ends);
        Ok(answers
            .map(|(tokens, end)| Answer { tokens, end: end.unwrap_or_else(forgotten) })
            .collect())
    }
}

impl<B: Backend> Session<B> {
    /// Blocks and slots that neither are free nor belong to the prefix cache.
    pub fn held(&self) -> (usize, usize) {
        let stats = self.engine.stats();
        let (blocks, slots) = self.engine.free();
        (stats.blocks - blocks - stats.prefix.device_blocks, stats.slots - slots)
    }
}

/// Requests on their way: id, a number of the caller's, tokens so far.
pub type Live = Vec<(SequenceId, usize, Vec<TokenId>)>;

impl<B: Backend> Session<B> {
    /// One step; returns number and tokens of the requests that ended, and removes them.
    ///
    /// # Panics
    /// If the engine or a request fails.
    pub fn collect(&mut self, live: &mut Live) -> Vec<(usize, Vec<TokenId>)> {
        let mut ended = Vec::new();
        for event in self.engine.step().unwrap() {
            match event {
                Event::Prefill { .. } => {}
                Event::Token { id, token, .. } => {
                    let request = live.iter_mut().find(|(live, ..)| *live == id).unwrap();
                    request.2.push(token);
                }
                Event::Finished { id, .. } => {
                    let index = live.iter().position(|(live, ..)| *live == id).unwrap();
                    let (_, number, tokens) = live.swap_remove(index);
                    ended.push((number, tokens));
                }
                Event::Failed { error, .. } => panic!("{error}"),
            }
        }
        ended
    }
}

/// A greedy request for exactly `count` tokens, unless the context ends.
pub fn greedy_request(prompt: &[TokenId], count: usize) -> Request {
    Request { max_tokens: Some(count), ..Request::new(prompt.to_vec()) }
}
