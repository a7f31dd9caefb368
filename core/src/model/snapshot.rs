//! Snapshots: the recurrent state of a sequence stored in ordinary KV blocks.
//!
//! A block is one page of every KV pool. A snapshot takes [`Cache::snapshot_blocks`] blocks, any
//! ones: seen as one stream of words, the pages of those blocks in the first pool come first, then
//! those in the second pool, and so on; the states of the delta net layers (convolution, then
//! recurrent, in layer order) fill the stream from its start. So one pool of blocks is the one budget
//! of keys, values and states, with nothing to split, convert or defragment.

use super::Cache;
use super::cache::{LayerCache, kv_layout};
use crate::backend::Backend;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::ids::SlotId;
use crate::kv::{KvPool, KvType};
use crate::ops::{CopyDirection, CopyPages, Ops};
use crate::tensor::Tensor;

/// Bytes of a word.
const WORD: usize = 4;

/// Words that one op copies: a part of a state and where it lies in the pages of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    state: usize,
    state_start: usize,
    pool: usize,
    page_start: usize,
    words: usize,
}

/// Cuts states of these lengths, one after the other, at the ends of pools of `pool_words`.
fn pieces(states: &[usize], pool_words: usize) -> Vec<Piece> {
    let mut all = Vec::new();
    let mut at = 0;
    for (state, length) in states.iter().enumerate() {
        let mut start = 0;
        while start < *length {
            let page_start = at % pool_words;
            let words = (length - start).min(pool_words - page_start);
            all.push(Piece { state, state_start: start, pool: at / pool_words, page_start, words });
            start += words;
            at += words;
        }
    }
    all
}

impl<B: Backend> Cache<B> {
    /// Blocks that hold the recurrent state of one sequence; 0 without recurrent layers.
    pub fn snapshot_blocks(config: &ModelConfig, kv_type: KvType) -> usize {
        config.state_bytes().div_ceil(Self::block_bytes(config, kv_type).max(1))
    }

    /// Records the copy of a state slot to blocks or back. `table` is i32
    /// `[1 + snapshot_blocks]`: the slot, then the blocks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for recurrent layers without a KV pool; device errors.
    pub fn record_snapshot(
        &mut self,
        pass: &mut impl Ops<B>,
        table: &Tensor<B>,
        direction: CopyDirection,
    ) -> Result<()> {
        let blocks = table.rows().max(1) - 1;
        let (mut states, mut pools) = self.split();
        let lengths: Vec<usize> =
            states.iter().map(|s| s.row_len() * s.dtype.bytes() / WORD).collect();
        let Some(pool) = pools.first() else {
            return Err(Error::unsupported("snapshots", "the model has no attention layer"));
        };
        let pool_words = blocks * pool.layout.block_bytes() / WORD;
        if pool_words == 0 {
            return Ok(());
        }
        for piece in pieces(&lengths, pool_words) {
            let (Some(state), Some(pool)) =
                (states.get_mut(piece.state), pools.get_mut(piece.pool))
            else {
                return Err(Error::invalid("snapshot", format!("{blocks} blocks do not hold it")));
            };
            pass.copy_pages(CopyPages {
                state,
                pool,
                table,
                state_start: piece.state_start,
                page_start: piece.page_start,
                words: piece.words,
                direction,
            })?;
        }
        Ok(())
    }

    /// Records the copy of whole blocks onto others in all pools: see [`Ops::copy_state`] for
    /// `pairs`.
    ///
    /// # Errors
    /// Device errors.
    pub fn record_block_copies(&mut self, pass: &mut impl Ops<B>, pairs: &Tensor<B>) -> Result<()> {
        self.split().1.into_iter().try_for_each(|pool| pass.copy_state(pairs, &mut pool.pages))
    }

    /// Records the copy of blocks to the first row of `staging` or back, for transfers from and to
    /// the host. `table` is i32 `[1 + n]`: 0, then the blocks. The row holds the `n` pages of the
    /// first pool, then those of the second, and so on.
    ///
    /// # Errors
    /// Shape error if the row is too short; device errors.
    pub fn record_staging(
        &mut self,
        pass: &mut impl Ops<B>,
        table: &Tensor<B>,
        staging: &mut Tensor<B>,
        direction: CopyDirection,
    ) -> Result<()> {
        let blocks = table.rows().max(1) - 1;
        for (index, pool) in self.split().1.into_iter().enumerate() {
            let words = blocks * pool.layout.block_bytes() / WORD;
            let state_start = index * words;
            pass.copy_pages(CopyPages {
                state: staging,
                pool,
                table,
                state_start,
                page_start: 0,
                words,
                direction,
            })?;
        }
        Ok(())
    }

    /// The state of a slot as bytes, in the order of a snapshot.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_state(&mut self, backend: &B, slot: SlotId) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for state in self.split().0 {
            let row = state.row_range(slot.index()..slot.index() + 1)?;
            let start = bytes.len();
            bytes.resize(start + row.row_len() * row.dtype.bytes(), 0);
            backend.read(&row, &mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Writes what [`Cache::read_state`] gave.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of bytes; device errors.
    pub fn write_state(&mut self, backend: &B, slot: SlotId, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for state in self.split().0 {
            let row = state.row_range(slot.index()..slot.index() + 1)?;
            let length = row.row_len() * row.dtype.bytes();
            let Some((bytes, after)) = rest.split_at_checked(length) else {
                return Err(Error::invalid("state", format!("{} bytes are too few", bytes.len())));
            };
            backend.write(&row, bytes)?;
            rest = after;
        }
        if rest.is_empty() {
            return Ok(());
        }
        Err(Error::invalid("state", format!("{} bytes are too many", bytes.len())))
    }

    /// States and pools in the order of the stream.
    fn split(&mut self) -> (Vec<&mut Tensor<B>>, Vec<&mut KvPool<B>>) {
        let (mut states, mut pools) = (Vec::new(), Vec::new());
        for layer in &mut self.layers {
            match layer {
                LayerCache::Attention(pool) => pools.push(pool),
                LayerCache::DeltaNet { conv, recurrent } => states.extend([conv, recurrent]),
            }
        }
        pools.extend(self.mtp.as_mut());
        (states, pools)
    }

    /// Bytes of one page of one pool, and the number of pools.
    pub fn pages(config: &ModelConfig, kv_type: KvType) -> (usize, usize) {
        let pools = config.attention_layers() + usize::from(config.mtp);
        (kv_layout(config, kv_type).block_bytes(), pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_every_word_once_in_order(
            states in prop::collection::vec(1usize..50, 0..9), pool_words in 1usize..40,
        ) {
            let mut at = 0;
            let mut done = vec![0; states.len()];
            for piece in pieces(&states, pool_words) {
                prop_assert_eq!(piece.pool * pool_words + piece.page_start, at);
                prop_assert_eq!(done[piece.state], piece.state_start);
                prop_assert!(piece.words > 0 && piece.page_start + piece.words <= pool_words);
                done[piece.state] += piece.words;
                at += piece.words;
            }
            prop_assert_eq!(done, states);
        }
    }
}
