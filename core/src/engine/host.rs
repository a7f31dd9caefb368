//! Host memory of the second tier: blocks as the device has them, all pools of a block together.

use crate::ids::BlockId;

/// Bytes of host blocks. The memory is touched only as blocks are written.
pub(super) struct HostStore {
    data: Vec<u8>,
    block_bytes: usize,
}

impl HostStore {
    /// Room for `blocks` blocks.
    pub(super) fn new(blocks: usize, block_bytes: usize) -> Self {
        Self { data: vec![0; blocks * block_bytes], block_bytes }
    }

    /// Bytes of a block.
    pub(super) fn block(&self, id: BlockId) -> &[u8] {
        &self.data[id.index() * self.block_bytes..][..self.block_bytes]
    }

    /// Bytes of a block.
    pub(super) fn block_mut(&mut self, id: BlockId) -> &mut [u8] {
        &mut self.data[id.index() * self.block_bytes..][..self.block_bytes]
    }

    /// Writes `bytes` over `blocks`, in order.
    pub(super) fn write(&mut self, blocks: &[BlockId], bytes: &[u8]) {
        for (block, bytes) in blocks.iter().zip(bytes.chunks(self.block_bytes)) {
            self.block_mut(*block)[..bytes.len()].copy_from_slice(bytes);
        }
    }

    /// The first `len` bytes of `blocks`, in order.
    pub(super) fn read(&self, blocks: &[BlockId], len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        for block in blocks {
            let rest = len - bytes.len();
            bytes.extend_from_slice(&self.block(*block)[..rest.min(self.block_bytes)]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_blocks_is_read_back() {
        let mut store = HostStore::new(4, 10);
        let blocks = [BlockId(3), BlockId(0), BlockId(2)];
        let bytes: Vec<u8> = (0..25).collect();
        store.write(&blocks, &bytes);
        assert_eq!(store.read(&blocks, 25), bytes);
        assert_eq!(store.block(BlockId(3)), &bytes[..10]);
        assert_eq!(store.block(BlockId(1)), [0; 10]);
    }
}
