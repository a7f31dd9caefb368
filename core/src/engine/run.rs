//! One pass: inputs, program, and what its results mean for each sequence.

use super::sequence::{FinishReason, Status};
use super::{Engine, Event, Profile, schedule};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::profile::{Metered, totals};
use std::time::Instant;

/// Weight of a prompt's measured time per token in the running mean.
const NEWEST: f64 = 0.3;

impl<B: Backend> Engine<B> {
    /// Runs the planned rows and takes in their results.
    pub(super) fn run(&mut self, planned: &[schedule::Planned]) -> Result<()> {
        let started = Instant::now();
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
        let mut tokens = vec![0i32; batch.out_rows.len()];
        if !tokens.is_empty() {
            backend.read(&self.work.tokens, bytemuck::cast_slice_mut(&mut tokens))?;
        }
        self.account(shape.rows, !tokens.is_empty(), started);
        self.since_chunk += 1;
        let mut output = 0;
        for planned in planned {
            let sequence = &mut self.running[planned.index];
            sequence.computed += planned.rows;
            if sequence.status == Status::Prefill {
                self.since_chunk = 0;
                sequence.last_chunk = self.stats.steps;
                self.stats.prefilled_tokens += planned.rows as u64;
                self.events.push(Event::Prefill {
                    id: sequence.id,
                    done: sequence.computed.min(sequence.timing.prompt_tokens),
                    reused: sequence.timing.reused_tokens,
                    total: sequence.timing.prompt_tokens,
                });
                self.save_at_cut(planned.index)?;
            }
            if planned.outputs > 0 {
                self.running[planned.index].status = Status::Decode;
                self.choose(planned.index, output, tokens[output])?;
                output += 1;
            }
        }
        self.retire()
    }

    /// Takes in the time of a pass. One without results returns before the device is done; its time
    /// falls into the next one, which then says nothing about its own rows.
    fn account(&mut self, rows: usize, settled: bool, started: Instant) {
        self.stats.steps += 1;
        if settled {
            let elapsed = started.elapsed();
            self.stats.step_time.record(elapsed);
            if !self.unsettled {
                self.costs.observe(rows, elapsed.as_secs_f64());
            }
        }
        self.unsettled = !settled;
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
        self.note_time(index);
        let sequence = &mut self.running[index];
        let id = sequence.id;
        match chosen {
            Ok((token, logprobs)) => {
                let reason = sequence.accept(token, self.plan.context);
                if reason != Some(FinishReason::Stop) {
                    self.stats.generated_tokens += 1;
                    self.events.push(Event::Token { id, token, logprobs });
                }
                if let Some(reason) = reason {
                    sequence.status = Status::Ended;
                    self.events.push(Event::Finished { id, reason, timing: sequence.timing });
                }
            }
            Err(error) => {
                sequence.status = Status::Ended;
                sequence.remember = false;
                self.events.push(Event::Failed { id, error });
            }
        }
        Ok(())
    }

    /// Times of a sequence's tokens.
    fn note_time(&mut self, index: usize) {
        let now = Instant::now();
        let sequence = &mut self.running[index];
        match sequence.last_token.replace(now) {
            Some(last) => self.stats.inter_token.record(now - last),
            None => {
                self.stats.first_token.record(now - sequence.submitted);
                let computed = sequence.timing.prompt_tokens - sequence.timing.reused_tokens;
                if let Some(started) = sequence.started.filter(|_| computed > 0) {
                    let seconds = (now - started).as_secs_f64() / computed as f64;
                    let mean = self.seconds_per_token.unwrap_or(seconds);
                    self.seconds_per_token = Some(mean + NEWEST * (seconds - mean));
                }
            }
        }
    }

    /// Lets ended sequences go.
    fn retire(&mut self) -> Result<()> {
        while let Some(index) = self.running.iter().position(|s| s.status == Status::Ended) {
            let sequence = self.running.remove(index);
            self.stats.finished += 1;
            self.leave(sequence)?;
        }
        Ok(())
    }
}
