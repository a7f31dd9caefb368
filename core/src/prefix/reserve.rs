//! What others need to know of the blocks: how many the cache holds, and host blocks for preempted
//! sequences, from the same budget as the host copies of snapshots.

use super::{PrefixCache, Tier};
use crate::error::Result;
use crate::ids::BlockId;

impl PrefixCache {
    /// Different device blocks that snapshots hold.
    pub fn device_blocks(&self) -> usize {
        self.holdings[Tier::Device.index()].distinct()
    }

    /// Host blocks for the caller's own use, after dropping host copies for them. `None` if that
    /// many cannot be had. Give them back with [`PrefixCache::release_host`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if the bookkeeping is broken.
    pub fn reserve_host(&mut self, blocks: usize) -> Result<Option<Vec<BlockId>>> {
        if !self.make_host_room(blocks, f64::INFINITY)? {
            return Ok(None);
        }
        Ok(self.host.allocate(blocks))
    }

    /// Gives back blocks of [`PrefixCache::reserve_host`].
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if they are not held.
    pub fn release_host(&mut self, blocks: impl IntoIterator<Item = BlockId>) -> Result<()> {
        blocks.into_iter().try_for_each(|block| self.host.release(block))
    }
}
