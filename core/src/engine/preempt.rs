//! When blocks run out: first the prefix cache gives way, then the youngest sequence is parked in
//! host memory, to go on later with the same bits.

use super::Engine;
use super::schedule::{self, Planned};
use super::sequence::{Parked, Sequence, Status};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::BlockId;
use crate::kv::BLOCK_TOKENS;

impl<B: Backend> Engine<B> {
    /// Blocks from the pool, after dropping what the prefix cache can spare.
    pub(super) fn allocate(&mut self, count: usize) -> Result<Option<Vec<BlockId>>> {
        if self.blocks.free() < count
            && let Some(prefix) = &mut self.prefix
        {
            prefix.make_room(count, &mut self.blocks)?;
        }
        Ok(self.blocks.allocate(count))
    }

    /// Rows of the next pass, with a block for each. Parks sequences, youngest first, until the rest
    /// fits.
    pub(super) fn plan_rows(&mut self) -> Result<Vec<Planned>> {
        loop {
            let planned = self.scheduled();
            let mut short = None;
            for row in &planned {
                let sequence = &self.running[row.index];
                let needed = (sequence.computed + row.rows).div_ceil(BLOCK_TOKENS);
                let missing = needed.saturating_sub(sequence.blocks.len());
                match self.allocate(missing)? {
                    Some(more) => self.running[row.index].blocks.extend(more),
                    None => {
                        short = Some(missing);
                        break;
                    }
                }
            }
            let Some(missing) = short else { return Ok(planned) };
            let youngest = self.running.iter().enumerate().max_by_key(|(_, s)| s.id);
            let Some((youngest, _)) = youngest.filter(|_| self.running.len() > 1) else {
                return Err(Error::OutOfMemory {
                    what: "a KV block".into(),
                    needed: missing as u64,
                    available: self.blocks.free() as u64,
                    advice: "the memory plan is too small for its context".into(),
                });
            };
            self.park(youngest)?;
        }
    }

    /// Rows by status and budget.
    fn scheduled(&mut self) -> Vec<Planned> {
        let streams = self.running.iter().filter(|s| s.status == Status::Decode).count();
        let prompts = self.running.iter().any(|s| s.status == Status::Prefill);
        let mut rows = 0;
        if prompts {
            let totals = schedule::totals(self.plan.max_rows, &self.backend.info().row_buckets);
            let chunk = self.costs.chunk(streams, &totals);
            if self.since_chunk + 1 >= chunk.every {
                rows = chunk.rows;
            }
        }
        schedule::plan(&self.running, rows, self.plan.max_rows)
    }

    /// Moves running sequence `index` to the front of the queue. Its keys, values and state go to the
    /// host tier; without room there it is computed again.
    fn park(&mut self, index: usize) -> Result<()> {
        let mut sequence = self.running.remove(index);
        self.stats.preemptions += 1;
        let covered = sequence.computed.div_ceil(BLOCK_TOKENS);
        let state_bytes = self.model.config.state_bytes();
        let state_blocks = state_bytes.div_ceil(self.transfers.block_bytes());
        let room = match &mut self.prefix {
            Some(prefix) if covered > 0 => prefix.reserve_host(covered + state_blocks)?,
            _ => None,
        };
        if let Some(mut kv) = room {
            let state = kv.split_off(covered);
            let copies: Vec<_> = sequence.blocks.iter().copied().zip(kv.iter().copied()).collect();
            self.transfers.copy_to_host(&self.backend, &copies, &mut self.host)?;
            let bytes = self.cache.read_state(&self.backend, sequence.slot)?;
            self.host.write(&state, &bytes);
            self.stats.host_written_bytes +=
                (copies.len() * self.transfers.block_bytes() + bytes.len()) as u64;
            sequence.parked = Some(Parked { kv, state });
        } else {
            self.stats.preemptions_recomputed += 1;
            sequence.computed = 0;
            sequence.status = Status::Prefill;
        }
        tracing::info!(
            sequence = sequence.id.0,
            tokens = sequence.tokens.len(),
            parked = sequence.parked.is_some(),
            "KV blocks ran out: the youngest sequence waits"
        );
        self.release(&mut sequence)?;
        self.waiting.push_front(sequence);
        Ok(())
    }

    /// Brings a parked sequence back, or returns it if there is no room yet.
    pub(super) fn resume(&mut self, mut sequence: Sequence) -> Result<Option<Box<Sequence>>> {
        // One more than it held, or the next token would park it again.
        let needed = sequence.tokens.len().div_ceil(BLOCK_TOKENS) + 1;
        let Some(parked) = &sequence.parked else { return Ok(Some(Box::new(sequence))) };
        let (kv, state) = (parked.kv.clone(), parked.state.clone());
        let Some(slot) = self.free_slots.last().copied() else {
            return Ok(Some(Box::new(sequence)));
        };
        let Some(blocks) = self.allocate(needed.min(self.blocks.len()))? else {
            return Ok(Some(Box::new(sequence)));
        };
        self.free_slots.pop();
        let copies: Vec<_> = kv.iter().copied().zip(blocks.iter().copied()).collect();
        self.transfers.copy_to_device(&self.backend, &copies, &self.host)?;
        let bytes = self.host.read(&state, self.model.config.state_bytes());
        self.cache.write_state(&self.backend, slot, &bytes)?;
        self.stats.host_fetched_bytes +=
            (copies.len() * self.transfers.block_bytes() + bytes.len()) as u64;
        self.unpark(&mut sequence)?;
        sequence.blocks = blocks;
        sequence.slot = slot;
        self.running.push(sequence);
        Ok(None)
    }

    /// Gives back what a sequence holds in host memory.
    pub(super) fn unpark(&mut self, sequence: &mut Sequence) -> Result<()> {
        match (sequence.parked.take(), &mut self.prefix) {
            (Some(parked), Some(prefix)) => {
                prefix.release_host(parked.kv.into_iter().chain(parked.state))
            }
            _ => Ok(()),
        }
    }
}
