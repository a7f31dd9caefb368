//! What goes when room is needed.

use super::cache::{Entry, PrefixCache};
use super::holdings::Copy;
use super::{Kind, SnapshotId, Tier};
use crate::engine::block_pool::BlockPool;
use crate::error::Result;
use crate::ids::BlockId;
use std::collections::BTreeSet;

/// Residents above which candidates are drawn at random, and how many are.
const SCORE_ALL: usize = 200;
const CANDIDATES: usize = 64;

impl PrefixCache {
    /// Drops device copies, least worth first, until `pool` has `wanted` free blocks. False, with
    /// nothing dropped, if leases, transfers and running sequences hold too much for that. A snapshot
    /// with a host copy stays on the host.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn make_room(&mut self, wanted: usize, pool: &mut BlockPool) -> Result<bool> {
        self.evict(Tier::Device, wanted, f64::INFINITY, pool)
    }

    /// Drops device copies until at most `cap` blocks of `pool` are in use. False if others hold
    /// more than that.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn shrink(&mut self, cap: usize, pool: &mut BlockPool) -> Result<bool> {
        self.make_room(pool.len().saturating_sub(cap), pool)
    }

    /// Sets how many host blocks may be in use, at most those there are, and drops host copies
    /// beyond that. False if transfers and parked sequences hold more; it applies all the same.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn shrink_host(&mut self, cap: usize) -> Result<bool> {
        self.host_cap = cap.min(self.host.len());
        self.make_host_room(0, f64::INFINITY)
    }

    /// Drops both copies of a snapshot, parked or not. Its leases stay valid. Unknown ids are
    /// ignored.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn remove(&mut self, id: SnapshotId, pool: &mut BlockPool) -> Result<()> {
        self.detach(id, Tier::Device, pool)?;
        self.on_host(|cache, host| cache.detach(id, Tier::Host, host))?;
        self.trim();
        Ok(())
    }

    /// Drops everything, ghosts too. Leases and transfers stay valid; statistics stay.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn clear(&mut self, pool: &mut BlockPool) -> Result<()> {
        let ids: Vec<SnapshotId> = self.entries.keys().copied().collect();
        for id in ids {
            self.remove(id, pool)?;
        }
        for id in self.tree.trim(0) {
            self.entries.remove(&id);
        }
        Ok(())
    }

    /// Runs `body` with the host pool beside the cache.
    pub(super) fn on_host<T>(&mut self, body: impl FnOnce(&mut Self, &mut BlockPool) -> T) -> T {
        let mut host = std::mem::replace(&mut self.host, BlockPool::new(0));
        let result = body(self, &mut host);
        self.host = host;
        result
    }

    /// Makes `wanted` host blocks available under the cap by dropping what scores below `limit`.
    pub(super) fn make_host_room(&mut self, wanted: usize, limit: f64) -> Result<bool> {
        let reserved = self.host.len() - self.host_cap;
        self.on_host(|cache, host| cache.evict(Tier::Host, wanted + reserved, limit, host))
    }

    fn evict(
        &mut self,
        tier: Tier,
        wanted: usize,
        limit: f64,
        pool: &mut BlockPool,
    ) -> Result<bool> {
        let done = self.evict_until(tier, wanted, limit, pool);
        self.trim();
        done
    }

    fn evict_until(
        &mut self,
        tier: Tier,
        wanted: usize,
        limit: f64,
        pool: &mut BlockPool,
    ) -> Result<bool> {
        let mut possible = false;
        while pool.free() < wanted {
            let Some((victim, score, freed)) = self.cheapest(tier, pool) else { return Ok(false) };
            if score >= limit {
                return Ok(false);
            }
            if !possible && pool.free() + freed < wanted {
                possible = pool.free() + self.reclaimable(tier, pool) >= wanted;
                if !possible {
                    return Ok(false);
                }
            }
            self.drop_copy(victim, tier, pool)?;
        }
        Ok(true)
    }

    /// Blocks that dropping all that may be dropped would free.
    fn reclaimable(&self, tier: Tier, pool: &BlockPool) -> usize {
        let all = self.holdings[tier.index()].reclaimable(pool);
        let kept: BTreeSet<BlockId> = self.residents[tier.index()]
            .iter()
            .filter_map(|id| self.entries.get(id))
            .filter(|entry| !may_drop(entry, tier))
            .flat_map(|entry| entry.copies[tier.index()].iter().flat_map(Copy::blocks))
            .filter(|block| self.holdings[tier.index()].count(*block) == pool.references(*block))
            .collect();
        all - kept.len()
    }

    /// The copy to drop next: its score, and the blocks that gives.
    fn cheapest(&mut self, tier: Tier, pool: &BlockPool) -> Option<(SnapshotId, f64, usize)> {
        let count = self.residents[tier.index()].len();
        if count > SCORE_ALL {
            let drawn: Vec<usize> = (0..CANDIDATES).map(|_| self.draw(count)).collect();
            let residents = &self.residents[tier.index()];
            let drawn: Vec<SnapshotId> = drawn.iter().map(|index| residents[*index]).collect();
            let best = self.cheapest_of(&drawn, tier, pool);
            if best.is_some_and(|(_, _, freed)| freed > 0) {
                return best;
            }
        }
        self.cheapest_of(&self.residents[tier.index()], tier, pool)
    }

    fn cheapest_of(
        &self,
        ids: &[SnapshotId],
        tier: Tier,
        pool: &BlockPool,
    ) -> Option<(SnapshotId, f64, usize)> {
        ids.iter()
            .filter_map(|id| Some((*id, self.entries.get(id)?)))
            .filter(|(_, entry)| may_drop(entry, tier))
            .map(|(id, entry)| {
                let freed = Self::freed(entry, tier, pool);
                (id, self.score(id, entry, tier, freed), freed)
            })
            .min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
    }

    fn draw(&mut self, count: usize) -> usize {
        // xorshift64: the same choices in every run.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % count.max(1) as u64) as usize
    }

    fn drop_copy(&mut self, id: SnapshotId, tier: Tier, pool: &mut BlockPool) -> Result<()> {
        let entry = self.entry_mut(id)?;
        let (node, last_use) = (entry.node, entry.last_use);
        // Its conversations fall back to the next one up, which is as recent as they are.
        if self.tree.resident_below(node, tier) == 0
            && let Some((above, _)) = self.shallower(id, tier)
        {
            let above = self.entry_mut(above)?;
            above.last_use = above.last_use.max(last_use);
        }
        match tier {
            Tier::Device => self.stats.device_evictions += 1,
            Tier::Host => self.stats.host_evictions += 1,
        }
        self.detach(id, tier, pool)
    }
}

/// Whether a copy may be dropped to make room. A parked one has to reach the host and stay there.
fn may_drop(entry: &Entry, tier: Tier) -> bool {
    let parked = entry.kind == Kind::Parked && (tier == Tier::Host || !entry.is_in(Tier::Host));
    entry.users[tier.index()] == 0 && !parked
}
