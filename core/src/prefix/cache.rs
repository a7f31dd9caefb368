//! The cache: look up, lease, insert.

use super::holdings::{Copy, Holdings};
use super::score::{Classes, Role};
use super::tree::{NodeId, Tree};
use super::{Found, Kind, Lease, Match, PrefixOptions, PrefixStats, SnapshotId, Tier};
use crate::engine::block_pool::BlockPool;
use crate::error::{Error, Result};
use crate::ids::{BlockId, TokenId};
use crate::kv::BLOCK_TOKENS;
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot, resident or ghost.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) node: NodeId,
    pub(super) position: usize,
    pub(super) kind: Kind,
    /// Ways that lead on, as far as requests showed.
    pub(super) continuations: u32,
    pub(super) last_use: f64,
    pub(super) copies: [Option<Copy>; Tier::COUNT],
    /// Place in the list of residents, by tier.
    pub(super) listed: [usize; Tier::COUNT],
    /// Leases and transfers that read or write it, by tier.
    pub(super) users: [u32; Tier::COUNT],
}

impl Entry {
    pub(super) fn is_in(&self, tier: Tier) -> bool {
        self.copies[tier.index()].is_some()
    }
}

/// Snapshots of states and keys and values by the tokens that led to them. See the [module](super).
#[derive(Debug)]
pub struct PrefixCache {
    options: PrefixOptions,
    now: f64,
    next_id: u64,
    pub(super) tree: Tree,
    pub(super) entries: BTreeMap<SnapshotId, Entry>,
    pub(super) residents: [Vec<SnapshotId>; Tier::COUNT],
    /// On the device without a copy or a transfer to the host.
    pub(super) unwritten: BTreeSet<SnapshotId>,
    pub(super) holdings: [Holdings; Tier::COUNT],
    pub(super) host: BlockPool,
    /// Most host blocks in use.
    pub(super) host_cap: usize,
    pub(super) classes: Classes,
    pub(super) stats: PrefixStats,
    /// State of the generator that picks candidates for eviction.
    pub(super) seed: u64,
}

impl PrefixCache {
    /// An empty cache.
    pub fn new(options: PrefixOptions) -> Self {
        Self {
            host: BlockPool::new(options.host_blocks),
            host_cap: options.host_blocks,
            options,
            now: 0.0,
            next_id: 0,
            tree: Tree::default(),
            entries: BTreeMap::new(),
            residents: Default::default(),
            unwritten: BTreeSet::new(),
            holdings: Default::default(),
            classes: Classes::default(),
            stats: PrefixStats::default(),
            seed: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The settings.
    pub fn options(&self) -> &PrefixOptions {
        &self.options
    }

    /// Sets the time in seconds since some fixed moment. Time never runs backwards.
    pub fn tick(&mut self, now_seconds: f64) {
        self.now = self.now.max(now_seconds);
    }

    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// What is known about a prompt. Nothing changes: ask as often as needed.
    pub fn lookup(&self, salt: u64, tokens: &[TokenId]) -> Match {
        let walk = self.tree.walk(salt, tokens);
        let limit = walk.matched.min(tokens.len().saturating_sub(1));
        let mut found = Match {
            prompt_len: tokens.len(),
            known: walk.matched,
            forks: walk.matched > 0 && (walk.continues || walk.matched == tokens.len()),
            device: None,
            host: None,
            taken: None,
        };
        let snapshots = walk.path.iter().rev().filter_map(|node| self.tree.snapshot(*node));
        for id in snapshots {
            let Some(entry) = self.entries.get(&id).filter(|e| e.position <= limit) else {
                continue;
            };
            let here = Found { id, position: entry.position };
            found.taken.get_or_insert(here);
            if entry.is_in(Tier::Device) {
                found.device.get_or_insert(here);
            }
            if entry.is_in(Tier::Host) {
                found.host.get_or_insert(here);
            }
        }
        if self.options.snapshot_blocks == 0 {
            // Keys and values can be cut anywhere.
            let anywhere = |tier| {
                let (id, shared) = self.tree.cover(&walk, tier)?;
                Some(Found { id, position: shared.min(limit) }).filter(|found| found.position > 0)
            };
            found.device = anywhere(Tier::Device);
            found.host = anywhere(Tier::Host);
        }
        found
    }

    /// Counts a request once, when its prefill starts from `hit`: demand of snapshots, hit tokens,
    /// and why the others were lost.
    pub fn record(&mut self, found: &Match, hit: usize) {
        let stats = &mut self.stats;
        stats.requests += 1;
        stats.prompt_tokens += found.prompt_len as u64;
        stats.hit_tokens += hit as u64;
        let limit = found.limit().max(hit);
        stats.matched_tokens += limit as u64;
        let taken = found.taken.map_or(0, |taken| taken.position).max(hit);
        stats.lost_evicted += (taken - hit) as u64;
        let never = (limit - taken) as u64;
        if limit - taken < self.options.fork_minimum {
            stats.lost_below_fork += never;
        } else {
            stats.lost_no_snapshot += never;
        }
        let Some(taken) = found.taken else { return };
        let Some(entry) = self.entries.get_mut(&taken.id) else { return };
        self.classes.demand(entry.kind, Role::of(entry.continuations));
        entry.continuations = entry.continuations.saturating_add(1);
        self.classes.begin(entry.kind, Role::of(entry.continuations));
        self.tree.touch(entry.node, self.now);
    }

    /// Leases a snapshot on the device up to `position` (its own, but for models without recurrent
    /// layers) and refreshes it. A parked snapshot counts as taken and becomes an ordinary one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not on the device or cannot be resumed there.
    pub fn acquire(
        &mut self,
        id: SnapshotId,
        position: usize,
        pool: &mut BlockPool,
    ) -> Result<Lease> {
        let (exact, now) = (self.options.snapshot_blocks > 0, self.now);
        let entry = self.entry_mut(id)?;
        let fits = if exact { position == entry.position } else { position <= entry.position };
        let copy = entry.copies[Tier::Device.index()].as_ref().filter(|_| fits && position > 0);
        let Some(copy) = copy else {
            return Err(Error::invalid("snapshot", format!("no resumable position {position}")));
        };
        let full = position / BLOCK_TOKENS;
        let lease = Lease {
            id,
            position,
            kv: copy.kv[..full].to_vec(),
            partial: (position % BLOCK_TOKENS > 0).then(|| copy.kv[full]),
            state: copy.state.clone(),
        };
        entry.users[Tier::Device.index()] += 1;
        if entry.kind == Kind::Parked {
            entry.kind = Kind::Generated;
        }
        entry.last_use = now;
        let node = entry.node;
        self.tree.touch(node, now);
        lease.blocks().try_for_each(|block| pool.retain(block))?;
        Ok(lease)
    }

    /// Ends a lease; what it still holds is released.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bookkeeping is broken.
    pub fn release_lease(&mut self, lease: Lease, pool: &mut BlockPool) -> Result<()> {
        if let Some(entry) = self.entries.get_mut(&lease.id) {
            let users = &mut entry.users[Tier::Device.index()];
            *users = users.saturating_sub(1);
        }
        lease.blocks().try_for_each(|block| pool.release(block))
    }

    /// True if the device has a snapshot at exactly the end of `tokens`: another one is of no use.
    pub fn contains(&self, salt: u64, tokens: &[TokenId]) -> bool {
        self.exact(salt, tokens).is_some_and(|(_, entry)| entry.is_in(Tier::Device))
    }

    pub(super) fn exact(&self, salt: u64, tokens: &[TokenId]) -> Option<(SnapshotId, &Entry)> {
        let id = self.tree.snapshot(self.tree.walk(salt, tokens).path.last().copied()?)?;
        let entry = self.entries.get(&id)?;
        (entry.position == tokens.len()).then_some((id, entry))
    }

    /// Saves a snapshot at the end of `tokens` on the device. The references to `state` pass to the
    /// cache; of `kv` the blocks that cover the tokens are retained. If the device has the position
    /// already, `state` is released and nothing else happens.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are no tokens, too few blocks, or a block is not held. Nothing is
    /// taken over then.
    pub fn insert(
        &mut self,
        salt: u64,
        tokens: &[TokenId],
        kind: Kind,
        kv: &[BlockId],
        state: Vec<BlockId>,
        pool: &mut BlockPool,
    ) -> Result<SnapshotId> {
        let copy = self.checked_copy(tokens, kv, state)?;
        if let Some(block) = copy.blocks().find(|block| pool.references(*block) == 0) {
            return Err(Error::invalid("block", format!("{block} is not held")));
        }
        let id = self.ensure(salt, tokens, kind);
        if self.entry_mut(id)?.is_in(Tier::Device) {
            copy.state.iter().try_for_each(|block| pool.release(*block))?;
            return Ok(id);
        }
        copy.kv.iter().try_for_each(|block| pool.retain(*block))?;
        self.attach(id, Tier::Device, copy);
        self.trim();
        Ok(id)
    }

    /// The lists of a copy, if they have the lengths that the tokens ask for.
    pub(super) fn checked_copy(
        &self,
        tokens: &[TokenId],
        kv: &[BlockId],
        state: Vec<BlockId>,
    ) -> Result<Copy> {
        let wanted = (tokens.len().div_ceil(BLOCK_TOKENS), self.options.snapshot_blocks);
        match kv.get(..wanted.0) {
            Some(kv) if !tokens.is_empty() && state.len() == wanted.1 => {
                Ok(Copy { kv: kv.to_vec(), state })
            }
            _ => Err(Error::invalid(
                "snapshot",
                format!("{} + {} blocks, expected {wanted:?}", kv.len(), state.len()),
            )),
        }
    }

    /// The entry at the end of `tokens`, new or known, refreshed.
    pub(super) fn ensure(&mut self, salt: u64, tokens: &[TokenId], kind: Kind) -> SnapshotId {
        let node = self.tree.ensure(salt, tokens, self.now);
        if let Some(id) = self.tree.snapshot(node)
            && let Some(entry) = self.entries.get_mut(&id)
        {
            entry.kind = entry.kind.max(kind);
            entry.last_use = self.now;
            return id;
        }
        let id = SnapshotId(self.next_id);
        self.next_id += 1;
        self.tree.set_snapshot(node, id);
        // What was a leaf has its first continuation.
        let above = self.tree.above(node).next();
        if let Some(above) = above.and_then(|id| self.entries.get_mut(&id))
            && above.continuations == 0
        {
            above.continuations = 1;
            self.classes.begin(above.kind, Role::Middle);
        }
        let continuations = u32::from(self.tree.has_children(node));
        self.classes.begin(kind, Role::of(continuations));
        self.entries.insert(
            id,
            Entry {
                node,
                position: tokens.len(),
                kind,
                continuations,
                last_use: self.now,
                copies: [None, None],
                listed: [0; Tier::COUNT],
                users: [0; Tier::COUNT],
            },
        );
        id
    }

    /// Makes a copy resident.
    pub(super) fn attach(&mut self, id: SnapshotId, tier: Tier, copy: Copy) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let at = tier.index();
        self.holdings[at].add(&copy);
        entry.copies[at] = Some(copy);
        entry.listed[at] = self.residents[at].len();
        self.residents[at].push(id);
        self.tree.set_resident(entry.node, tier, true);
        match tier {
            Tier::Device if !entry.is_in(Tier::Host) => {
                self.unwritten.insert(id);
            }
            Tier::Device => {}
            Tier::Host => {
                self.unwritten.remove(&id);
            }
        }
    }

    /// Drops a copy from a tier.
    pub(super) fn detach(
        &mut self,
        id: SnapshotId,
        tier: Tier,
        pool: &mut BlockPool,
    ) -> Result<()> {
        let at = tier.index();
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(()) };
        let Some(copy) = entry.copies[at].take() else { return Ok(()) };
        let (node, place) = (entry.node, entry.listed[at]);
        let unwritten = tier == Tier::Host && entry.is_in(Tier::Device);
        self.holdings[at].remove(&copy);
        self.residents[at].swap_remove(place);
        if let Some(moved) = self.residents[at].get(place).copied() {
            self.entry_mut(moved)?.listed[at] = place;
        }
        self.tree.set_resident(node, tier, false);
        if unwritten {
            self.unwritten.insert(id);
        } else {
            self.unwritten.remove(&id);
        }
        copy.blocks().try_for_each(|block| pool.release(block))
    }

    pub(super) fn entry_mut(&mut self, id: SnapshotId) -> Result<&mut Entry> {
        let unknown = || Error::invalid("snapshot", format!("{} is unknown", id.0));
        self.entries.get_mut(&id).ok_or_else(unknown)
    }

    /// Forgets ghosts beyond their cap.
    pub(super) fn trim(&mut self) {
        if self.tree.ghost_tokens() > self.options.ghost_tokens {
            // Some slack, so that the next insert does not search again.
            let target = self.options.ghost_tokens - self.options.ghost_tokens / 8;
            for id in self.tree.trim(target) {
                self.entries.remove(&id);
            }
        }
    }

    /// Figures.
    pub fn stats(&self) -> PrefixStats {
        let resident = |tier: Tier| self.residents[tier.index()].len();
        let both = self.residents[Tier::Device.index()].len() - self.device_only();
        PrefixStats {
            device_snapshots: resident(Tier::Device),
            host_snapshots: resident(Tier::Host),
            ghost_snapshots: self.entries.len() + both
                - resident(Tier::Device)
                - resident(Tier::Host),
            ghost_tokens: self.tree.ghost_tokens(),
            device_blocks: self.holdings[Tier::Device.index()].distinct(),
            host_blocks: self.holdings[Tier::Host.index()].distinct(),
            ..self.stats
        }
    }

    fn device_only(&self) -> usize {
        let device = self.residents[Tier::Device.index()].iter();
        device.filter(|id| self.entries.get(id).is_some_and(|e| !e.is_in(Tier::Host))).count()
    }
}

impl Lease {
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.kv.iter().chain(&self.partial).chain(&self.state).copied()
    }
}
