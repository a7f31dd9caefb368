//! What the engine leaves in the prefix cache.

use super::Engine;
use super::sequence::Sequence;
use crate::backend::Backend;
use crate::error::Result;
use crate::prefix::{Kind, Tier};

impl<B: Backend> Engine<B> {
    /// Saves a snapshot of running sequence `index` if its prefill has just reached a cut.
    pub(super) fn save_at_cut(&mut self, index: usize) -> Result<()> {
        let sequence = &mut self.running[index];
        let computed = sequence.computed;
        let mut reached = None;
        while let Some(cut) = sequence.cuts.front().filter(|cut| cut.position <= computed) {
            reached = (cut.position == computed).then_some(cut.kind);
            sequence.cuts.pop_front();
        }
        let Some(kind) = reached else { return Ok(()) };
        let sequence = self.running.remove(index);
        let result = self.save(&sequence, kind);
        self.running.insert(index, sequence);
        result
    }

    /// Ends a sequence that left the running list: saves where it stopped, frees what it held.
    pub(super) fn leave(&mut self, mut sequence: Sequence) -> Result<()> {
        if sequence.remember && sequence.computed > 0 {
            self.save(&sequence, Kind::Generated)?;
        }
        self.release(&mut sequence)
    }

    /// Saves keys, values and state after the computed tokens, if there is room.
    fn save(&mut self, sequence: &Sequence, kind: Kind) -> Result<()> {
        let tokens = &sequence.tokens[..sequence.computed];
        match &self.prefix {
            Some(prefix) if !prefix.contains(sequence.salt, tokens) => {}
            _ => return Ok(()),
        }
        let Some(state) = self.allocate(self.plan.snapshot_blocks)? else {
            self.stats.snapshots_skipped += 1;
            return Ok(());
        };
        self.transfers.save(&self.backend, sequence.slot, &state)?;
        let Some(prefix) = &mut self.prefix else { return Ok(()) };
        let (salt, kv, pool) = (sequence.salt, &sequence.blocks, &mut self.blocks);
        prefix.insert(salt, tokens, kind, kv, state, pool)?;
        Ok(())
    }

    /// Copies one snapshot to the host tier. True if another one is left.
    pub(super) fn write_through(&mut self) -> Result<bool> {
        let Some(prefix) = &mut self.prefix else { return Ok(false) };
        let Some(transfer) = prefix.next_write_through(&mut self.blocks)? else {
            return Ok(false);
        };
        debug_assert_eq!(transfer.to(), Tier::Host);
        let bytes = (transfer.copies.len() * self.transfers.block_bytes()) as u64;
        let copied = self.transfers.copy_to_host(&self.backend, &transfer.copies, &mut self.host);
        prefix.finish_transfer(transfer, copied.is_ok(), &mut self.blocks)?;
        copied?;
        self.stats.host_written_bytes += bytes;
        Ok(true)
    }
}
