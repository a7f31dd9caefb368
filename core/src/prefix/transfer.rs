//! Copies between the tiers. The cache decides and counts; its caller moves the bytes, block by
//! block, and reports the end.

use super::cache::{Entry, PrefixCache};
use super::holdings::Copy;
use super::{Costs, Kind, Match, ResidentSnapshot, SnapshotId, Tier};
use crate::engine::block_pool::BlockPool;
use crate::error::Result;
use crate::ids::{BlockId, TokenId};
use crate::kv::BLOCK_TOKENS;

/// Blocks to copy from one tier to the other. It holds references to all blocks on both sides, so
/// nothing is reused meanwhile.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "blocks stay held until the transfer is finished"]
pub struct Transfer {
    /// Snapshot.
    pub id: SnapshotId,
    /// Pairs (from, to). Blocks that the other tier has already are not among them.
    pub copies: Vec<(BlockId, BlockId)>,
    to: Tier,
    copy: Copy,
}

impl Transfer {
    /// Where the blocks go.
    pub fn to(&self) -> Tier {
        self.to
    }
}

#[cfg(test)]
impl Transfer {
    /// Blocks of the copy that is being made.
    pub(super) fn targets(&self) -> impl Iterator<Item = BlockId> {
        self.copy.blocks()
    }
}

/// Host blocks for a snapshot that comes from elsewhere, such as a file.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "blocks stay held until the restore is finished"]
pub struct Restore {
    salt: u64,
    tokens: Vec<TokenId>,
    kind: Kind,
    shared: usize,
    copy: Copy,
}

impl Restore {
    /// Host blocks for keys and values. The first [`Restore::shared`] hold them already.
    pub fn kv(&self) -> &[BlockId] {
        &self.copy.kv
    }
    /// Blocks of [`Restore::kv`] that another snapshot filled, and that must not be written.
    pub fn shared(&self) -> usize {
        self.shared
    }
    /// Host blocks for the state.
    pub fn state(&self) -> &[BlockId] {
        &self.copy.state
    }
}

impl PrefixCache {
    /// The next snapshot to copy to the host: parked ones first, then the most valuable. `None` if
    /// all are there or the host is full of better ones. Finish it with
    /// [`PrefixCache::finish_transfer`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn next_write_through(&mut self, device: &mut BlockPool) -> Result<Option<Transfer>> {
        if self.host_cap == 0 {
            return Ok(None);
        }
        let best = (self.unwritten.iter())
            .filter_map(|id| Some((*id, self.entries.get(id)?)))
            .filter(|(_, entry)| entry.users[Tier::Host.index()] == 0)
            .map(|(id, entry)| {
                let parked = entry.kind == Kind::Parked;
                let freed = Self::freed(entry, Tier::Device, device).max(1);
                (
                    id,
                    if parked { f64::INFINITY } else { self.score(id, entry, Tier::Device, freed) },
                )
            })
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let Some((id, _)) = best else { return Ok(None) };
        self.write_through(id, device)
    }

    /// Copies one snapshot to the host, as [`PrefixCache::next_write_through`] does. `None` if it is
    /// there, on its way, or not worth the room.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the snapshot is unknown or the bookkeeping is broken.
    pub fn write_through(
        &mut self,
        id: SnapshotId,
        device: &mut BlockPool,
    ) -> Result<Option<Transfer>> {
        let (shared, missing) = self.plan(id, Tier::Host)?;
        let entry = self.movable(id, Tier::Device, Tier::Host);
        let Some(entry) = entry else { return Ok(None) };
        let limit = match entry.kind {
            Kind::Parked => f64::INFINITY,
            _ => self.score(id, entry, Tier::Host, missing.max(1)),
        };
        self.on_host(|cache, host| cache.retain_all(&shared, host))?;
        let room = self.make_host_room(missing, limit)?;
        let mut host = std::mem::replace(&mut self.host, BlockPool::new(0));
        let transfer = self.begin(id, Tier::Host, shared, room, device, &mut host);
        self.host = host;
        transfer
    }

    /// Begins to copy a snapshot from the host to the device, after making room there. `None` if it
    /// is on the device, on its way, not on the host, or there is no room. Finish it with
    /// [`PrefixCache::finish_transfer`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the snapshot is unknown or the bookkeeping is broken.
    pub fn begin_fetch(
        &mut self,
        id: SnapshotId,
        device: &mut BlockPool,
    ) -> Result<Option<Transfer>> {
        let (shared, missing) = self.plan(id, Tier::Device)?;
        if self.movable(id, Tier::Host, Tier::Device).is_none() {
            return Ok(None);
        }
        // What it shares must not go while room is made.
        self.retain_all(&shared, device)?;
        let room = self.make_room(missing, device)?;
        let mut host = std::mem::replace(&mut self.host, BlockPool::new(0));
        let transfer = self.begin(id, Tier::Device, shared, room, &mut host, device);
        self.host = host;
        transfer
    }

    /// The entry, if it is in one tier and neither in the other nor on its way there.
    fn movable(&self, id: SnapshotId, from: Tier, to: Tier) -> Option<&Entry> {
        let idle = |entry: &&Entry| !entry.is_in(to) && entry.users[to.index()] == 0;
        self.entries.get(&id).filter(|entry| entry.is_in(from)).filter(idle)
    }

    /// Blocks that the tier has for a snapshot already, and how many it lacks.
    fn plan(&self, id: SnapshotId, to: Tier) -> Result<(Vec<BlockId>, usize)> {
        let Some(entry) = self.entries.get(&id) else {
            return Err(crate::Error::invalid("snapshot", format!("{} is unknown", id.0)));
        };
        let (salt, tokens) = self.tree.tokens(entry.node);
        let shared = self.shareable(salt, &tokens, to);
        let all = tokens.len().div_ceil(BLOCK_TOKENS) + self.options().snapshot_blocks;
        let missing = all - shared.len();
        Ok((shared, missing))
    }

    /// Leading blocks of a path that some resident copy of a tier holds.
    fn shareable(&self, salt: u64, tokens: &[TokenId], tier: Tier) -> Vec<BlockId> {
        let cover = self.tree.cover(&self.tree.walk(salt, tokens), tier);
        let Some((id, common)) = cover else { return Vec::new() };
        let copy = self.entries.get(&id).and_then(|entry| entry.copies[tier.index()].as_ref());
        let Some(copy) = copy else { return Vec::new() };
        // A copy that goes on along the path fills our last block as well, a partial one included.
        let whole = if common == tokens.len() {
            tokens.len().div_ceil(BLOCK_TOKENS)
        } else {
            common / BLOCK_TOKENS
        };
        copy.kv[..whole].to_vec()
    }

    fn retain_all(&self, blocks: &[BlockId], pool: &mut BlockPool) -> Result<()> {
        blocks.iter().try_for_each(|block| pool.retain(*block))
    }

    /// Allocates what is missing and holds the sources. `shared` is held already.
    fn begin(
        &mut self,
        id: SnapshotId,
        to: Tier,
        shared: Vec<BlockId>,
        room: bool,
        source_pool: &mut BlockPool,
        target_pool: &mut BlockPool,
    ) -> Result<Option<Transfer>> {
        let from = match to {
            Tier::Device => Tier::Host,
            Tier::Host => Tier::Device,
        };
        let snapshot_blocks = self.options().snapshot_blocks;
        let entry = self.entry_mut(id)?;
        let source = entry.copies[from.index()].as_ref().filter(|_| room);
        let Some(source) = source else {
            shared.iter().try_for_each(|block| target_pool.release(*block))?;
            return Ok(None);
        };
        let missing = source.kv.len() - shared.len() + snapshot_blocks;
        let Some(mut fresh) = target_pool.allocate(missing) else {
            shared.iter().try_for_each(|block| target_pool.release(*block))?;
            return Ok(None);
        };
        let sources = source.kv[shared.len()..].iter().chain(&source.state).copied();
        let copies: Vec<_> = sources.zip(fresh.iter().copied()).collect();
        for (block, _) in &copies {
            source_pool.retain(*block)?;
        }
        let state = fresh.split_off(missing - snapshot_blocks);
        let mut kv = shared;
        kv.extend(fresh);
        entry.users[from.index()] += 1;
        entry.users[to.index()] += 1;
        if to == Tier::Host {
            self.unwritten.remove(&id);
        }
        Ok(Some(Transfer { id, copies, to, copy: Copy { kv, state } }))
    }

    /// Ends a transfer; with `ok` the snapshot is resident on the other side.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn finish_transfer(
        &mut self,
        transfer: Transfer,
        ok: bool,
        device: &mut BlockPool,
    ) -> Result<()> {
        self.on_host(|cache, host| {
            let (source, target) = match transfer.to {
                Tier::Device => (host, device),
                Tier::Host => (device, host),
            };
            for (block, _) in &transfer.copies {
                source.release(*block)?;
            }
            let Transfer { id, to, copy, copies } = transfer;
            let wanted = match cache.entries.get_mut(&id) {
                Some(entry) => {
                    entry.users = entry.users.map(|users| users.saturating_sub(1));
                    ok && !entry.is_in(to)
                }
                None => false,
            };
            if wanted {
                match to {
                    Tier::Device => cache.stats.fetched_blocks += copies.len() as u64,
                    Tier::Host => cache.stats.written_blocks += copies.len() as u64,
                }
                cache.attach(id, to, copy);
                return Ok(());
            }
            if let Some(entry) = cache.entries.get(&id)
                && entry.is_in(Tier::Device)
                && !entry.is_in(Tier::Host)
            {
                cache.unwritten.insert(id);
            }
            copy.blocks().try_for_each(|block| target.release(block))
        })
    }

    /// Device blocks that a fetch of the snapshot would fill; 0 if it is unknown.
    pub fn fetch_blocks(&self, id: SnapshotId) -> usize {
        self.plan(id, Tier::Device).map_or(0, |(_, missing)| missing)
    }

    /// Whether copying the deepest host position costs less than computing from the device's.
    pub fn worth_fetching(&self, found: &Match, costs: &Costs) -> bool {
        let Some(host) = found.host.filter(|host| host.position > found.hit()) else {
            return false;
        };
        let bytes = (self.fetch_blocks(host.id) * costs.block_bytes) as f64;
        let saved = (host.position - found.hit()) as f64 * costs.seconds_per_token;
        bytes / costs.bytes_per_second < saved
    }

    /// Snapshots in host memory.
    pub fn resident(&self) -> impl Iterator<Item = ResidentSnapshot<'_>> {
        self.residents[Tier::Host.index()].iter().filter_map(|id| {
            let entry = self.entries.get(id)?;
            let copy = entry.copies[Tier::Host.index()].as_ref()?;
            let (salt, tokens) = self.tree.tokens(entry.node);
            let (id, kind) = (*id, entry.kind);
            Some(ResidentSnapshot { id, salt, tokens, kind, kv: &copy.kv, state: &copy.state })
        })
    }

    /// Host blocks for a snapshot to be filled from elsewhere. `None` if the host has it or has no
    /// free room: nothing is dropped for it. Restore shallow positions before deep ones, so that
    /// blocks are shared.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] without tokens, or if the bookkeeping is broken.
    pub fn begin_restore(
        &mut self,
        salt: u64,
        tokens: &[TokenId],
        kind: Kind,
    ) -> Result<Option<Restore>> {
        if tokens.is_empty() {
            return Err(crate::Error::invalid("snapshot", "no tokens"));
        }
        let mut kv = self.shareable(salt, tokens, Tier::Host);
        let shared = kv.len();
        let missing = tokens.len().div_ceil(BLOCK_TOKENS) - shared;
        let wanted = missing + self.options().snapshot_blocks;
        let reserved = self.host.len() - self.host_cap;
        let known = self.exact(salt, tokens).is_some_and(|(_, entry)| entry.is_in(Tier::Host));
        if known || self.host.free() < wanted + reserved {
            return Ok(None);
        }
        let Some(mut fresh) = self.host.allocate(wanted) else { return Ok(None) };
        kv.iter().try_for_each(|block| self.host.retain(*block))?;
        let state = fresh.split_off(missing);
        kv.extend(fresh);
        let copy = Copy { kv, state };
        Ok(Some(Restore { salt, tokens: tokens.to_vec(), kind, shared, copy }))
    }

    /// Ends a restore; with `ok` the snapshot is resident on the host.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn finish_restore(&mut self, restore: Restore, ok: bool) -> Result<()> {
        let Restore { salt, tokens, kind, copy, .. } = restore;
        if ok {
            let id = self.ensure(salt, &tokens, kind);
            if !self.entry_mut(id)?.is_in(Tier::Host) {
                self.attach(id, Tier::Host, copy);
                return Ok(());
            }
        }
        copy.blocks().try_for_each(|block| self.host.release(block))
    }
}
