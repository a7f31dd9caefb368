//! Between the host tier and the disk.

use super::Engine;
use super::disk::{Disk, Key, Saved};
use super::sequence::Sequence;
use crate::backend::Backend;
use crate::error::Result;
use crate::kv::BLOCK_TOKENS;
use crate::prefix::{Match, PrefixCache};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Tokens that a read from the disk must save.
const WORTH_READING: usize = 64;

/// Bytes per second of a disk, before one was measured: a slow one.
const DISK_BANDWIDTH: f64 = 500e6;

impl<B: Backend> Engine<B> {
    /// Keeps snapshots of the host tier in files below `folder`, at most `cap` bytes, and finds those
    /// of earlier runs. `fingerprint` tells one model from another
    /// ([`crate::weights::Checkpoint::fingerprint`]); files of another model, layout, device or
    /// version of forge are never used.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if the folder cannot be used.
    pub fn attach_disk(&mut self, folder: &Path, fingerprint: u64, cap: u64) -> Result<()> {
        let info = self.backend.info();
        let plan = &self.plan;
        let identity = format!(
            "{fingerprint} {} {} {} {:?} {:?} {} {BLOCK_TOKENS}",
            env!("CARGO_PKG_VERSION"),
            info.backend,
            info.name,
            plan.kv_type,
            plan.transfer_sizes(),
            plan.snapshot_bytes,
        );
        self.disk = Some(Disk::open(folder, xxh3_64(identity.as_bytes()), cap)?);
        Ok(())
    }

    /// Writes what the host tier has and the disk lacks. For the end of a run; waits for the disk.
    ///
    /// # Errors
    /// As [`Engine::maintain`].
    pub fn flush_cache(&mut self) -> Result<()> {
        while self.write_through()? {}
        // The queue to the disk may be full for a while.
        while self.unsaved() {
            if !self.persist() {
                std::thread::yield_now();
            }
            self.take_disk_results(false)?;
        }
        Ok(())
    }

    fn unsaved(&self) -> bool {
        let (Some(prefix), Some(disk)) = (&self.prefix, &self.disk) else { return false };
        disk.errors == 0 && prefix.resident().any(|s| !disk.has(&Key::of(s.salt, &s.tokens)))
    }

    /// Starts to write one snapshot of the host tier. True if another one may be left.
    pub(super) fn persist(&mut self) -> bool {
        let (Some(prefix), Some(disk)) = (&self.prefix, &mut self.disk) else { return false };
        // Shallow ones first: the deeper ones then need only what they add.
        let unsaved = prefix.resident().filter(|s| !disk.has(&Key::of(s.salt, &s.tokens)));
        let Some(snapshot) = unsaved.min_by_key(|s| s.tokens.len()) else { return false };
        let (parent, first_block) = disk.parent(snapshot.salt, &snapshot.tokens);
        let bytes =
            |blocks: &[_]| self.host.read(blocks, blocks.len() * self.transfers.block_bytes());
        let saved = Saved {
            salt: snapshot.salt,
            kind: snapshot.kind,
            parent,
            first_block,
            kv: bytes(&snapshot.kv[first_block..]),
            state: bytes(snapshot.state),
            tokens: snapshot.tokens,
        };
        disk.save(saved)
    }

    /// Starts to read a prefix from the disk if that beats computing. True if the sequence has to
    /// wait for it.
    pub(super) fn begin_load(&mut self, sequence: &mut Sequence, found: &Match) -> bool {
        let token_cost = self.token_cost();
        let Some(disk) = &mut self.disk else { return false };
        if sequence.read_from_disk {
            return false;
        }
        let (salt, tokens) = (sequence.salt, &sequence.tokens);
        let limit = tokens.len() - 1;
        let held = found.host.map_or(0, |host| host.position).max(found.hit());
        let Some((position, bytes)) = disk.find(salt, tokens, limit) else { return false };
        let saved = position.saturating_sub(held);
        let worth = bytes as f64 / DISK_BANDWIDTH < saved as f64 * token_cost;
        sequence.read_from_disk = saved >= WORTH_READING && worth && disk.load(salt, tokens, limit);
        sequence.read_from_disk
    }

    /// Puts what was read into the host tier; with `wait`, waits for it.
    pub(super) fn take_disk_results(&mut self, wait: bool) -> Result<()> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        for saved in disk.poll(wait) {
            let Some(prefix) = &mut self.prefix else { break };
            let block_bytes = self.transfers.block_bytes();
            let blocks = saved.tokens.len().div_ceil(BLOCK_TOKENS) + self.plan.snapshot_blocks;
            make_room(prefix, blocks)?;
            let Some(restore) = prefix.begin_restore(saved.salt, &saved.tokens, saved.kind)? else {
                continue;
            };
            let fresh = restore.shared().checked_sub(saved.first_block);
            let kv = fresh.and_then(|fresh| saved.kv.get(fresh * block_bytes..));
            let wanted = restore.kv().len() - restore.shared();
            let whole = kv.is_some_and(|kv| kv.len() == wanted * block_bytes)
                && saved.state.len() == restore.state().len() * block_bytes;
            if let (Some(kv), true) = (kv, whole) {
                self.host.write(&restore.kv()[restore.shared()..], kv);
                self.host.write(restore.state(), &saved.state);
                self.stats.disk_read_bytes += (kv.len() + saved.state.len()) as u64;
            }
            prefix.finish_restore(restore, whole)?;
        }
        Ok(())
    }
}

/// Frees `blocks` blocks of the host tier.
fn make_room(prefix: &mut PrefixCache, blocks: usize) -> Result<()> {
    match prefix.reserve_host(blocks)? {
        Some(reserved) => prefix.release_host(reserved),
        None => Ok(()),
    }
}
