//! From the queue into a slot: what the prefix cache has is taken over, the rest is planned.

use super::sequence::{Sequence, Status};
use super::{Engine, Fetch};
use crate::backend::Backend;
use crate::error::Result;
use crate::kv::BLOCK_TOKENS;
use crate::prefix::{Costs, Found, Match};
use std::time::Instant;

/// Tokens that must be saved for a request to wait until a running one has computed them.
const WORTH_WAITING: usize = 64;

impl<B: Backend> Engine<B> {
    /// Moves waiting requests into slots while slots and blocks last, in order. A request may let
    /// others pass only while it waits for a prefix that a running one is computing.
    pub(super) fn admit(&mut self) -> Result<()> {
        self.advance_fetch(self.running.is_empty())?;
        self.take_disk_results(self.running.is_empty())?;
        let mut passed = 0;
        while !self.free_slots.is_empty() && passed < self.waiting.len() && !self.is_fetching() {
            let Some(sequence) = self.waiting.remove(passed) else { break };
            if self.waits_for_prefix(&sequence) {
                self.waiting.insert(passed, sequence);
                passed += 1;
                continue;
            }
            let parked = sequence.parked.is_some();
            let refused = if parked { self.resume(sequence)? } else { self.start(sequence)? };
            if let Some(sequence) = refused {
                self.waiting.insert(passed, *sequence);
                break;
            }
        }
        Ok(())
    }

    /// True while a prefix is on its way for the first of the queue.
    fn is_fetching(&self) -> bool {
        self.fetch.is_some() || self.disk.as_ref().is_some_and(|disk| disk.is_loading())
    }

    /// True if a running sequence is about to save a prefix of this one that is worth having.
    fn waits_for_prefix(&self, sequence: &Sequence) -> bool {
        let Some(prefix) = &self.prefix else { return false };
        if sequence.parked.is_some() {
            return false;
        }
        let others = self.running.iter().filter(|r| r.status == Status::Prefill);
        let mut others = others.filter(|r| r.salt == sequence.salt).peekable();
        if others.peek().is_none() {
            return false;
        }
        let found = prefix.lookup(sequence.salt, &sequence.tokens);
        let limit = sequence.tokens.len() - 1;
        others.any(|other| {
            other.cuts.iter().any(|cut| {
                let end = cut.position;
                end <= limit
                    && end >= found.hit() + WORTH_WAITING
                    && other.tokens[..end] == sequence.tokens[..end]
            })
        })
    }

    /// Gives a sequence a slot and the blocks of its prompt, or returns it if there is no room yet or
    /// its prefix is on the way from the host.
    fn start(&mut self, mut sequence: Sequence) -> Result<Option<Box<Sequence>>> {
        if let Some(found) = self.look_up(&sequence)
            && (self.begin_load(&mut sequence, &found) || self.begin_fetch(&found)?)
        {
            return Ok(Some(Box::new(sequence)));
        }
        // A fetch that found no room may have dropped what the first look-up saw.
        let found = self.look_up(&sequence);
        let Some(hit) = self.take_prefix(&mut sequence, found.and_then(|f| f.device))? else {
            return Ok(Some(Box::new(sequence)));
        };
        if let (Some(prefix), Some(found)) = (&mut self.prefix, &found) {
            sequence.cuts = prefix.cuts(found, hit, &sequence.boundaries).into();
            if sequence.started.is_none() {
                prefix.record(found, hit);
            }
        }
        if sequence.started.is_none() {
            sequence.timing.reused_tokens = hit;
            self.stats.reused_tokens += hit as u64;
        }
        sequence.started.get_or_insert_with(Instant::now);
        self.running.push(sequence);
        Ok(None)
    }

    fn look_up(&self, sequence: &Sequence) -> Option<Match> {
        self.prefix.as_ref().map(|prefix| prefix.lookup(sequence.salt, &sequence.tokens))
    }

    /// Takes the saved prefix into the sequence, and allocates the rest of its prompt. Returns the
    /// tokens saved, or `None`, with nothing taken, if there is no room.
    fn take_prefix(
        &mut self,
        sequence: &mut Sequence,
        device: Option<Found>,
    ) -> Result<Option<usize>> {
        let Some(slot) = self.free_slots.last().copied() else { return Ok(None) };
        let needed = sequence.tokens.len().div_ceil(BLOCK_TOKENS);
        let mut lease = match (&mut self.prefix, device) {
            (Some(prefix), Some(found)) => {
                Some(prefix.acquire(found.id, found.position, &mut self.blocks)?)
            }
            _ => None,
        };
        let shared = lease.as_ref().map_or(0, |lease| lease.kv.len());
        let fresh = self.allocate(needed - shared)?;
        if let (Some(lease), Some(fresh)) = (&mut lease, &fresh) {
            // The partial block is written on by whoever saved it: this sequence gets its own.
            if let (Some(partial), Some(own)) = (lease.partial, fresh.first()) {
                self.transfers.copy_blocks(&self.backend, &[(partial, *own)])?;
            }
            self.transfers.restore(&self.backend, slot, &lease.state)?;
            sequence.blocks = std::mem::take(&mut lease.kv);
            sequence.computed = lease.position;
        }
        // Copies take effect in the order of their calls, so the blocks may be reused from here on.
        if let (Some(prefix), Some(lease)) = (&mut self.prefix, lease) {
            prefix.release_lease(lease, &mut self.blocks)?;
        }
        let Some(fresh) = fresh else { return Ok(None) };
        sequence.blocks.extend(fresh);
        sequence.slot = slot;
        self.free_slots.pop();
        Ok(Some(sequence.computed))
    }

    /// Starts to copy the deepest host snapshot to the device, if that beats computing. True if a
    /// copy is on its way.
    fn begin_fetch(&mut self, found: &Match) -> Result<bool> {
        let costs = Costs {
            block_bytes: self.transfers.block_bytes(),
            bytes_per_second: self.host_bandwidth,
            seconds_per_token: self.token_cost(),
        };
        let Some(prefix) = &mut self.prefix else { return Ok(false) };
        let Some(host) = found.host else { return Ok(false) };
        if !prefix.worth_fetching(found, &costs) {
            return Ok(false);
        }
        let Some(transfer) = prefix.begin_fetch(host.id, &mut self.blocks)? else {
            return Ok(false);
        };
        self.fetch = Some(Fetch { transfer, done: 0 });
        self.advance_fetch(self.running.is_empty())?;
        // A finished copy is found by the next look-up.
        Ok(true)
    }

    /// Copies the next piece of a snapshot from the host; all of it if nothing else runs.
    fn advance_fetch(&mut self, whole: bool) -> Result<()> {
        let Some(mut fetch) = self.fetch.take() else { return Ok(()) };
        let rest = fetch.transfer.copies.get(fetch.done..).unwrap_or(&[]);
        let count = if whole { rest.len() } else { rest.len().min(self.transfers.staged_blocks()) };
        let bytes = (count * self.transfers.block_bytes()) as u64;
        let started = Instant::now();
        self.transfers.copy_to_device(&self.backend, &rest[..count], &self.host)?;
        if count == rest.len() && bytes > 0 {
            let seconds = started.elapsed().as_secs_f64().max(1e-9);
            self.host_bandwidth = 0.5 * (self.host_bandwidth + bytes as f64 / seconds);
        }
        self.stats.host_fetched_bytes += bytes;
        fetch.done += count;
        if fetch.done < fetch.transfer.copies.len() {
            self.fetch = Some(fetch);
        } else if let Some(prefix) = &mut self.prefix {
            prefix.finish_transfer(fetch.transfer, true, &mut self.blocks)?;
        }
        Ok(())
    }
}
