//! Random schedules against a world that keeps the bytes: what a lease names must hold what the
//! prompt asks for, and every reference must be accounted for.

use super::*;
use crate::engine::block_pool::BlockPool;
use crate::kv::BLOCK_TOKENS;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

const DEVICE_BLOCKS: usize = 40;
const HOST_BLOCKS: usize = 30;

type Contents = Vec<[u64; BLOCK_TOKENS]>;

#[derive(Clone, Debug)]
enum Step {
    /// A prompt, its boundaries, and whether the sequence goes on running.
    Request {
        salt: u64,
        path: usize,
        len: usize,
        user: usize,
        parked: bool,
    },
    Finish(usize),
    HoldLease {
        salt: u64,
        path: usize,
        len: usize,
    },
    ReleaseLease(usize),
    Write,
    Fetch {
        salt: u64,
        path: usize,
        len: usize,
    },
    Transfer {
        index: usize,
        ok: bool,
    },
    Restore {
        from: usize,
        ok: bool,
    },
    MakeRoom(usize),
    Shrink {
        device: usize,
        host: usize,
    },
    Remove(usize),
    Clear,
}

struct Sequence {
    blocks: Vec<BlockId>,
}

struct World {
    cache: PrefixCache,
    pool: BlockPool,
    device: Contents,
    host: Contents,
    sequences: Vec<Sequence>,
    leases: Vec<Lease>,
    transfers: Vec<Transfer>,
    time: f64,
}

/// One of a few families of prompts that part at 5, 23 and 64 tokens.
fn prompt(path: usize, len: usize) -> Vec<TokenId> {
    let branch = |position: usize| match position {
        0..5 => 0,
        5..23 => path % 2,
        23..64 => path % 4,
        _ => path,
    };
    (0..len).map(|position| TokenId((position * 31 + branch(position) * 7919) as u32)).collect()
}

/// What position `tokens.len() - 1` must hold.
fn content(salt: u64, tokens: &[TokenId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (salt, tokens).hash(&mut hasher);
    hasher.finish()
}

impl World {
    fn new(snapshot_blocks: usize, ghost_tokens: usize, policy: EvictionPolicy) -> Self {
        let options = PrefixOptions {
            fork_minimum: 3,
            anchor_interval: 50,
            ghost_tokens,
            policy,
            ..PrefixOptions::new(snapshot_blocks, HOST_BLOCKS)
        };
        Self {
            cache: PrefixCache::new(options),
            pool: BlockPool::new(DEVICE_BLOCKS),
            device: vec![[0; BLOCK_TOKENS]; DEVICE_BLOCKS],
            host: vec![[0; BLOCK_TOKENS]; HOST_BLOCKS],
            sequences: Vec::new(),
            leases: Vec::new(),
            transfers: Vec::new(),
            time: 0.0,
        }
    }

    /// I2, and that the blocks hold what the position needs.
    fn check_lease(&self, lease: &Lease, salt: u64, tokens: &[TokenId]) {
        assert!(lease.position < tokens.len());
        let all: Vec<_> = lease.kv.iter().chain(&lease.partial).collect();
        assert_eq!(all.len(), lease.position.div_ceil(BLOCK_TOKENS));
        for position in 0..lease.position {
            let block = all[position / BLOCK_TOKENS];
            let held = self.device[block.index()][position % BLOCK_TOKENS];
            assert_eq!(held, content(salt, &tokens[..=position]), "position {position}");
        }
        for (piece, block) in lease.state.iter().enumerate() {
            let held = self.device[block.index()];
            assert_eq!(held[0], content(salt, &tokens[..lease.position]));
            assert_eq!(held[1], piece as u64);
        }
    }

    fn lease(&mut self, salt: u64, tokens: &[TokenId]) -> Option<Lease> {
        let found = self.cache.lookup(salt, tokens);
        assert!(found.known <= tokens.len());
        assert!(found.hit() <= found.limit());
        let device = found.device?;
        let lease = self.cache.acquire(device.id, device.position, &mut self.pool).unwrap();
        self.check_lease(&lease, salt, tokens);
        Some(lease)
    }

    fn allocate(&mut self, count: usize) -> Option<Vec<BlockId>> {
        let before = self.pool.free();
        if !self.cache.make_room(count, &mut self.pool).unwrap() {
            assert!(self.pool.free() < count && self.pool.free() >= before);
            return None;
        }
        Some(self.pool.allocate(count).unwrap())
    }

    fn request(&mut self, salt: u64, tokens: &[TokenId], user: usize, parked: bool) {
        let found = self.cache.lookup(salt, tokens);
        let lease = self.lease(salt, tokens);
        let hit = lease.as_ref().map_or(0, |lease| lease.position);
        self.cache.record(&found, hit);
        let shared = hit / BLOCK_TOKENS;
        let Some(own) = self.allocate(tokens.len().div_ceil(BLOCK_TOKENS) - shared) else {
            if let Some(lease) = lease {
                self.cache.release_lease(lease, &mut self.pool).unwrap();
            }
            return;
        };
        let mut blocks = Vec::new();
        if let Some(mut lease) = lease {
            blocks = std::mem::take(&mut lease.kv);
            if let Some(partial) = lease.partial {
                self.device[own[0].index()] = self.device[partial.index()];
            }
            self.cache.release_lease(lease, &mut self.pool).unwrap();
        }
        blocks.extend(own);
        self.sequences.push(Sequence { blocks: blocks.clone() });
        let boundaries = [
            Boundary { position: 5, kind: Kind::System },
            Boundary { position: user, kind: Kind::User },
        ];
        let end = if parked { Kind::Parked } else { Kind::Generated };
        let mut cuts = self.cache.cuts(&found, hit, &boundaries);
        assert!(cuts.iter().all(|cut| cut.position > hit && cut.position <= tokens.len()));
        assert!(cuts.is_sorted_by(|a, b| a.position < b.position));
        cuts.push(Boundary { position: tokens.len(), kind: end });
        let mut done = hit;
        for cut in cuts {
            for position in done..cut.position {
                self.device[blocks[position / BLOCK_TOKENS].index()][position % BLOCK_TOKENS] =
                    content(salt, &tokens[..=position]);
            }
            done = cut.position;
            self.save(salt, &tokens[..done], cut.kind, &blocks);
        }
    }

    fn save(&mut self, salt: u64, tokens: &[TokenId], kind: Kind, blocks: &[BlockId]) {
        let Some(state) = self.allocate(self.cache.options().snapshot_blocks) else { return };
        if !self.cache.contains(salt, tokens) {
            for (piece, block) in state.iter().enumerate() {
                self.device[block.index()][0] = content(salt, tokens);
                self.device[block.index()][1] = piece as u64;
            }
        }
        self.cache.insert(salt, tokens, kind, blocks, state, &mut self.pool).unwrap();
        assert!(self.cache.contains(salt, tokens));
    }

    fn run(&mut self, step: &Step) {
        self.time += 1.0;
        self.cache.tick(self.time);
        match *step {
            Step::Request { salt, path, len, user, parked } => {
                self.request(salt, &prompt(path, len), user, parked);
            }
            Step::Finish(index) => {
                if index < self.sequences.len() {
                    for block in self.sequences.remove(index).blocks {
                        self.pool.release(block).unwrap();
                    }
                }
            }
            Step::HoldLease { salt, path, len } => {
                let lease = self.lease(salt, &prompt(path, len));
                self.leases.extend(lease);
            }
            Step::ReleaseLease(index) => {
                if index < self.leases.len() {
                    let lease = self.leases.remove(index);
                    self.cache.release_lease(lease, &mut self.pool).unwrap();
                }
            }
            Step::Write => {
                let transfer = self.cache.next_write_through(&mut self.pool).unwrap();
                self.transfers.extend(transfer);
            }
            Step::Fetch { salt, path, len } => {
                if let Some(host) = self.cache.lookup(salt, &prompt(path, len)).host {
                    let transfer = self.cache.begin_fetch(host.id, &mut self.pool).unwrap();
                    self.transfers.extend(transfer);
                }
            }
            Step::Transfer { index, ok } => {
                if index < self.transfers.len() {
                    self.finish(index, ok);
                }
            }
            Step::Restore { from, ok } => self.restore(from, ok),
            Step::MakeRoom(wanted) => {
                let blocks = self.allocate(wanted).unwrap_or_default();
                blocks.into_iter().for_each(|block| self.pool.release(block).unwrap());
            }
            Step::Shrink { device, host } => {
                if self.cache.shrink(device, &mut self.pool).unwrap() {
                    assert!(self.pool.len() - self.pool.free() <= device);
                }
                if self.cache.shrink_host(host).unwrap() {
                    assert!(self.cache.host.len() - self.cache.host.free() <= host);
                }
            }
            Step::Remove(index) => {
                if let Some(id) = self.cache.entries.keys().nth(index).copied() {
                    self.cache.remove(id, &mut self.pool).unwrap();
                }
            }
            Step::Clear => self.cache.clear(&mut self.pool).unwrap(),
        }
    }

    fn finish(&mut self, index: usize, ok: bool) {
        let transfer = self.transfers.remove(index);
        for (from, to) in transfer.copies.iter().map(|(a, b)| (a.index(), b.index())) {
            match transfer.to() {
                Tier::Device => self.device[to] = self.host[from],
                Tier::Host => self.host[to] = self.device[from],
            }
        }
        self.cache.finish_transfer(transfer, ok, &mut self.pool).unwrap();
    }

    /// Takes a snapshot out of the host and puts it back, as a disk would.
    fn restore(&mut self, from: usize, ok: bool) {
        let Some((id, salt, tokens, kind, file)) = self.cache.resident().nth(from).map(|held| {
            let blocks = held.kv.iter().chain(held.state);
            let file: Vec<_> = blocks.map(|block| self.host[block.index()]).collect();
            (held.id, held.salt, held.tokens, held.kind, file)
        }) else {
            return;
        };
        self.cache.remove(id, &mut self.pool).unwrap();
        let Some(restore) = self.cache.begin_restore(salt, &tokens, kind).unwrap() else { return };
        let blocks = restore.kv().iter().chain(restore.state()).zip(file);
        for (block, bytes) in blocks.skip(restore.shared()) {
            self.host[block.index()] = bytes;
        }
        self.cache.finish_restore(restore, ok).unwrap();
    }

    /// I1, I7: counters equal what a recount finds, and every reference has a holder.
    fn check(&self) {
        let mut device: BTreeMap<BlockId, u32> = BTreeMap::new();
        let mut host = BTreeMap::new();
        for (tier, counts) in [(Tier::Device, &mut device), (Tier::Host, &mut host)] {
            let copies = self.cache.entries.values();
            let copies: Vec<_> =
                copies.filter_map(|entry| entry.copies[tier.index()].as_ref()).collect();
            let pool = if tier == Tier::Device { &self.pool } else { &self.cache.host };
            for copy in &copies {
                let alone = copy.blocks().filter(|block| pool.references(*block) == 1).count();
                let exclusive = copy.exclusive(pool);
                assert!(exclusive == alone || exclusive < alone && !self.transfers.is_empty());
            }
            for block in copies.iter().flat_map(|copy| copy.blocks()) {
                *counts.entry(block).or_insert(0) += 1;
            }
            assert_eq!(self.cache.residents[tier.index()].len(), copies.len());
            assert_eq!(self.cache.holdings[tier.index()].distinct(), counts.len());
        }
        for block in self.sequences.iter().flat_map(|sequence| &sequence.blocks) {
            *device.entry(*block).or_insert(0) += 1;
        }
        for block in self.leases.iter().flat_map(Lease::blocks) {
            *device.entry(block).or_insert(0) += 1;
        }
        for transfer in &self.transfers {
            let (source, target) = match transfer.to() {
                Tier::Device => (&mut host, &mut device),
                Tier::Host => (&mut device, &mut host),
            };
            transfer.copies.iter().for_each(|(block, _)| *source.entry(*block).or_insert(0) += 1);
            transfer.targets().for_each(|block| *target.entry(block).or_insert(0) += 1);
        }
        for (pool, counts) in [(&self.pool, &device), (&self.cache.host, &host)] {
            for block in (0..pool.len() as u32).map(BlockId) {
                let expected = counts.get(&block).copied().unwrap_or(0);
                assert_eq!(pool.references(block), expected, "block {block}");
            }
            assert_eq!(pool.free(), pool.len() - counts.len());
        }
        let unwritten: BTreeSet<_> = (self.cache.entries.iter())
            .filter(|(_, entry)| entry.is_in(Tier::Device) && !entry.is_in(Tier::Host))
            .map(|(id, _)| *id)
            .collect();
        assert!(self.cache.unwritten.is_subset(&unwritten));
        let moving = |id: &SnapshotId| self.transfers.iter().any(|t| t.id == *id);
        assert!(unwritten.difference(&self.cache.unwritten).all(moving));
        self.cache.tree.check();
        let stats = self.cache.stats();
        assert!(stats.ghost_tokens <= self.cache.options().ghost_tokens);
        let lost = stats.lost_evicted + stats.lost_no_snapshot + stats.lost_below_fork;
        assert_eq!(stats.matched_tokens, stats.hit_tokens + lost);
        let ghosts = (self.cache.entries.values())
            .filter(|entry| !entry.is_in(Tier::Device) && !entry.is_in(Tier::Host));
        assert_eq!(stats.ghost_snapshots, ghosts.count());
    }

    fn end(mut self) {
        while !self.transfers.is_empty() {
            self.finish(0, true);
        }
        self.cache.clear(&mut self.pool).unwrap();
        for lease in std::mem::take(&mut self.leases) {
            self.cache.release_lease(lease, &mut self.pool).unwrap();
        }
        for block in self.sequences.iter().flat_map(|sequence| &sequence.blocks) {
            self.pool.release(*block).unwrap();
        }
        assert_eq!(self.pool.free(), DEVICE_BLOCKS);
        assert_eq!(self.cache.host.free(), HOST_BLOCKS);
        assert!(self.cache.entries.is_empty());
        assert_eq!(self.cache.stats().ghost_tokens, 0);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0u64..2, 0usize..8, 1usize..130);
    prop_oneof![
        12 => (place(), 1usize..130, prop::bool::weighted(0.1)).prop_map(
            |((salt, path, len), user, parked)| Step::Request { salt, path, len, user, parked }),
        10 => (0usize..3).prop_map(Step::Finish),
        3 => place().prop_map(|(salt, path, len)| Step::HoldLease { salt, path, len }),
        3 => (0usize..3).prop_map(Step::ReleaseLease),
        5 => Just(Step::Write),
        5 => place().prop_map(|(salt, path, len)| Step::Fetch { salt, path, len }),
        9 => (0usize..3, prop::bool::weighted(0.8))
            .prop_map(|(index, ok)| Step::Transfer { index, ok }),
        2 => (0usize..6, any::<bool>()).prop_map(|(from, ok)| Step::Restore { from, ok }),
        2 => (0usize..DEVICE_BLOCKS).prop_map(Step::MakeRoom),
        1 => (0usize..DEVICE_BLOCKS, 0usize..HOST_BLOCKS * 2)
            .prop_map(|(device, host)| Step::Shrink { device, host }),
        1 => (0usize..20).prop_map(Step::Remove),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn nothing_is_lost_and_every_hit_is_exact(
        snapshot_blocks in 0usize..4,
        ghost_tokens in prop_oneof![Just(0usize), Just(100), Just(10_000)],
        density in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let policy = if density { EvictionPolicy::Density } else { EvictionPolicy::Reuse };
        let mut world = World::new(snapshot_blocks, ghost_tokens, policy);
        for step in &steps {
            world.run(step);
            world.check();
        }
        world.end();
    }
}
