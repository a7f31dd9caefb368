//! Copies that the prefix cache asks for: states to and from blocks, blocks onto blocks, blocks to
//! and from the host. Recorded once; each call writes a small table and submits.

use super::host::HostStore;
use crate::backend::{Backend, upload_i32};
use crate::error::{Error, Result};
use crate::ids::{BlockId, SlotId};
use crate::model::Cache;
use crate::ops::CopyDirection;
use crate::tensor::{DType, Shape, Tensor};

/// Most bytes that one transfer moves to or from the host: long enough to be worth its latency,
/// short enough that no stream waits for it.
const STAGING_BYTES: usize = 16 << 20;

/// Block pairs of one copy.
const PAIRS: usize = 8;

/// The recordings and their tables.
pub(super) struct Transfers<B: Backend> {
    block_bytes: usize,
    page_bytes: usize,
    snapshot_blocks: usize,
    snapshot: Tensor<B>,
    save: B::Program,
    restore: B::Program,
    pairs: Tensor<B>,
    copies: B::Program,
    staged_blocks: usize,
    staging: Tensor<B>,
    staged: Tensor<B>,
    stage_out: B::Program,
    stage_in: B::Program,
    bytes: Vec<u8>,
}

/// Sizes that [`Transfers`] needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Bytes of a page of one pool.
    pub(super) page_bytes: usize,
    /// KV pools.
    pub(super) pools: usize,
    /// Blocks of a snapshot.
    pub(super) snapshot_blocks: usize,
}

impl Sizes {
    fn staged_blocks(self) -> usize {
        (STAGING_BYTES / (self.page_bytes * self.pools).max(1)).clamp(1, 64)
    }

    /// Device memory that [`Transfers::new`] takes.
    pub(super) fn bytes(self) -> u64 {
        (self.staged_blocks() * self.page_bytes * self.pools) as u64
    }
}

impl<B: Backend> Transfers<B> {
    /// Records everything.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn new(backend: &B, cache: &mut Cache<B>, sizes: Sizes) -> Result<Self> {
        let table =
            |entries: usize| upload_i32(backend, &vec![-1; entries], Shape::new(&[entries]));
        let snapshot = table(1 + sizes.snapshot_blocks)?;
        let mut record =
            |direction| backend.record(|pass| cache.record_snapshot(pass, &snapshot, direction));
        let (save, restore) = (record(CopyDirection::ToPages)?, record(CopyDirection::FromPages)?);
        let pairs = upload_i32(backend, &[-1; 2 * PAIRS], Shape::new(&[PAIRS, 2]))?;
        let copies = backend.record(|pass| cache.record_block_copies(pass, &pairs))?;
        let staged_blocks = sizes.staged_blocks();
        let block_bytes = sizes.page_bytes * sizes.pools;
        let row = Shape::new(&[1, staged_blocks * block_bytes]);
        let mut staging = backend.zeros(row, DType::U8)?;
        let staged = table(1 + staged_blocks)?;
        let mut record = |direction| {
            backend.record(|pass| cache.record_staging(pass, &staged, &mut staging, direction))
        };
        let (stage_out, stage_in) =
            (record(CopyDirection::FromPages)?, record(CopyDirection::ToPages)?);
        Ok(Self {
            block_bytes,
            page_bytes: sizes.page_bytes,
            snapshot_blocks: sizes.snapshot_blocks,
            snapshot,
            save,
            restore,
            pairs,
            copies,
            staged_blocks,
            staging,
            staged,
            stage_out,
            stage_in,
            bytes: vec![0; staged_blocks * block_bytes],
        })
    }

    /// Bytes of a block over all pools.
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Blocks that one host transfer moves.
    pub(super) fn staged_blocks(&self) -> usize {
        self.staged_blocks
    }

    /// Starts the copy of a slot's state to `blocks`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another number of blocks; device errors.
    pub(super) fn save(&self, backend: &B, slot: SlotId, blocks: &[BlockId]) -> Result<()> {
        self.snapshot(backend, slot, blocks, &self.save)
    }

    /// Starts the copy of `blocks` to a slot's state.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub(super) fn restore(&self, backend: &B, slot: SlotId, blocks: &[BlockId]) -> Result<()> {
        self.snapshot(backend, slot, blocks, &self.restore)
    }

    fn snapshot(
        &self,
        backend: &B,
        slot: SlotId,
        blocks: &[BlockId],
        program: &B::Program,
    ) -> Result<()> {
        if blocks.len() != self.snapshot_blocks {
            let (has, wants) = (blocks.len(), self.snapshot_blocks);
            return Err(Error::invalid("snapshot", format!("{has} blocks instead of {wants}")));
        }
        if blocks.is_empty() {
            return Ok(());
        }
        let mut table = vec![slot.0 as i32];
        table.extend(blocks.iter().map(|block| block.0 as i32));
        backend.write(&self.snapshot, bytemuck::cast_slice(&table))?;
        backend.submit(program)
    }

    /// Starts the copy of whole blocks onto others.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn copy_blocks(&self, backend: &B, pairs: &[(BlockId, BlockId)]) -> Result<()> {
        for pairs in pairs.chunks(PAIRS) {
            let mut table = [-1i32; 2 * PAIRS];
            for (line, (from, to)) in table.chunks_mut(2).zip(pairs) {
                line.copy_from_slice(&[from.0 as i32, to.0 as i32]);
            }
            backend.write(&self.pairs, bytemuck::cast_slice(&table))?;
            backend.submit(&self.copies)?;
        }
        Ok(())
    }

    fn stage(&self, backend: &B, blocks: impl Iterator<Item = BlockId>) -> Result<()> {
        let mut table = vec![-1i32; 1 + self.staged_blocks];
        table[0] = 0;
        for (entry, block) in table[1..].iter_mut().zip(blocks) {
            *entry = block.0 as i32;
        }
        backend.write(&self.staged, bytemuck::cast_slice(&table))
    }

    /// Where page `pool` of staged block `index` lies in the row.
    fn page(&self, pool: usize, index: usize) -> std::ops::Range<usize> {
        let start = (pool * self.staged_blocks + index) * self.page_bytes;
        start..start + self.page_bytes
    }

    /// Copies device blocks to host blocks `(device, host)`, and waits.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn copy_to_host(
        &mut self,
        backend: &B,
        copies: &[(BlockId, BlockId)],
        host: &mut HostStore,
    ) -> Result<()> {
        for copies in copies.chunks(self.staged_blocks) {
            self.stage(backend, copies.iter().map(|(from, _)| *from))?;
            backend.submit(&self.stage_out)?;
            backend.read(&self.staging, &mut self.bytes)?;
            for (index, (_, to)) in copies.iter().enumerate() {
                for (pool, page) in
                    host.block_mut(*to).chunks_exact_mut(self.page_bytes).enumerate()
                {
                    page.copy_from_slice(&self.bytes[self.page(pool, index)]);
                }
            }
        }
        Ok(())
    }

    /// Starts the copy of host blocks to device blocks `(host, device)`.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn copy_to_device(
        &mut self,
        backend: &B,
        copies: &[(BlockId, BlockId)],
        host: &HostStore,
    ) -> Result<()> {
        for copies in copies.chunks(self.staged_blocks) {
            self.stage(backend, copies.iter().map(|(_, to)| *to))?;
            for (index, (from, _)) in copies.iter().enumerate() {
                for (pool, page) in host.block(*from).chunks_exact(self.page_bytes).enumerate() {
                    let range = self.page(pool, index);
                    self.bytes[range].copy_from_slice(page);
                }
            }
            backend.write(&self.staging, &self.bytes)?;
            backend.submit(&self.stage_in)?;
        }
        Ok(())
    }
}
