//! Which blocks of one tier the cache holds, and how often.

use crate::engine::block_pool::BlockPool;
use crate::ids::BlockId;

/// Blocks of one resident copy of a snapshot. Each is one reference in its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copy {
    /// Keys and values of `[0, position)`.
    pub(super) kv: Vec<BlockId>,
    /// The state.
    pub(super) state: Vec<BlockId>,
}

impl Copy {
    /// All blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.kv.iter().chain(&self.state).copied()
    }

    /// Blocks that dropping this copy would free. Who shares blocks shares a prefix of them, and a
    /// state is shared as a whole, so the count ends at the first block that others hold. A transfer in flight holds what it
    /// copies, anywhere; meanwhile the count may be too small.
    pub(super) fn exclusive(&self, pool: &BlockPool) -> usize {
        let alone = |block: &&BlockId| pool.references(**block) == 1;
        self.kv.iter().rev().take_while(alone).count() + self.state.iter().take_while(alone).count()
    }
}

/// References that resident copies hold in one tier.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    counts: Vec<u32>,
    distinct: usize,
}

impl Holdings {
    /// Different blocks held.
    pub(super) fn distinct(&self) -> usize {
        self.distinct
    }

    /// References that copies hold on a block.
    pub(super) fn count(&self, block: BlockId) -> u32 {
        self.counts.get(block.index()).copied().unwrap_or(0)
    }

    /// Counts a copy that came.
    pub(super) fn add(&mut self, copy: &Copy) {
        for block in copy.blocks() {
            if self.counts.len() <= block.index() {
                self.counts.resize(block.index() + 1, 0);
            }
            let count = &mut self.counts[block.index()];
            self.distinct += usize::from(*count == 0);
            *count += 1;
        }
    }

    /// Counts a copy that went.
    pub(super) fn remove(&mut self, copy: &Copy) {
        for block in copy.blocks() {
            let count = &mut self.counts[block.index()];
            *count -= 1;
            self.distinct -= usize::from(*count == 0);
        }
    }

    /// Blocks that would be free if every copy were dropped: nobody else holds them.
    pub(super) fn reclaimable(&self, pool: &BlockPool) -> usize {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.filter(|(index, count)| pool.references(BlockId(*index as u32)) == **count).count()
    }
}
