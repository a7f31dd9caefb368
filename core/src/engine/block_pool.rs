//! KV blocks: who holds how many. Pure.

use crate::error::{Error, Result};
use crate::ids::BlockId;

/// A pool of equal blocks with reference counts.
#[derive(Debug)]
pub struct BlockPool {
    references: Vec<u32>,
    free: Vec<BlockId>,
}

impl BlockPool {
    /// A pool of `blocks` free blocks.
    pub fn new(blocks: usize) -> Self {
        let free = (0..blocks as u32).rev().map(BlockId).collect();
        Self { references: vec![0; blocks], free }
    }

    /// Blocks that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// All blocks.
    pub fn len(&self) -> usize {
        self.references.len()
    }

    /// True for a pool without blocks.
    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    /// Takes `count` blocks, all or none.
    pub fn allocate(&mut self, count: usize) -> Option<Vec<BlockId>> {
        if count > self.free.len() {
            return None;
        }
        let blocks = self.free.split_off(self.free.len() - count);
        for block in &blocks {
            self.references[block.index()] = 1;
        }
        Some(blocks)
    }

    /// Holders of a block; 0 = free, or not of this pool.
    pub fn references(&self, block: BlockId) -> u32 {
        self.references.get(block.index()).copied().unwrap_or(0)
    }

    /// Adds a holder.
    ///
    /// # Errors
    /// [`Error::Invalid`] if nobody holds the block.
    pub fn retain(&mut self, block: BlockId) -> Result<()> {
        match self.references.get_mut(block.index()) {
            Some(count) if *count > 0 => *count += 1,
            _ => return Err(Error::invalid("block", format!("{block} is not held"))),
        }
        Ok(())
    }

    /// Removes a holder; the last one frees the block.
    ///
    /// # Errors
    /// [`Error::Invalid`] if nobody holds the block.
    pub fn release(&mut self, block: BlockId) -> Result<()> {
        match self.references.get_mut(block.index()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                if *count == 0 {
                    self.free.push(block);
                }
                Ok(())
            }
            _ => Err(Error::invalid("block", format!("{block} is freed twice"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_block_is_lost_or_given_twice(steps in prop::collection::vec((0usize..5, 0usize..9), 1..200)) {
            let mut pool = BlockPool::new(16);
            let mut held: Vec<BlockId> = Vec::new();
            for (action, amount) in steps {
                match action {
                    0 | 1 => if let Some(blocks) = pool.allocate(amount) {
                        for block in &blocks {
                            prop_assert!(!held.contains(block));
                        }
                        held.extend(blocks);
                    },
                    2 => if let Some(block) = held.get(amount).copied() {
                        pool.retain(block).unwrap();
                        held.push(block);
                    },
                    _ => if amount < held.len() {
                        pool.release(held.swap_remove(amount)).unwrap();
                    },
                }
                let mut distinct = held.clone();
                distinct.sort();
                distinct.dedup();
                prop_assert_eq!(pool.free() + distinct.len(), pool.len());
            }
            for block in held {
                pool.release(block).unwrap();
            }
            prop_assert_eq!(pool.free(), pool.len());
        }
    }

    #[test]
    fn freeing_twice_is_an_error() {
        let mut pool = BlockPool::new(1);
        let block = pool.allocate(1).unwrap()[0];
        pool.release(block).unwrap();
        assert!(pool.release(block).is_err());
        assert!(pool.retain(block).is_err());
    }
}
