//! Device buffers, and the pinned rings through which the host writes, uploads and reads.

use crate::ffi::{Context, Event, Memory, Stream};
use forge_core::{Error, Result};
use std::sync::Arc;

/// A shared handle of device memory; the last clone frees it.
#[derive(Clone)]
pub struct Buffer(Arc<Memory>);

impl Buffer {
    /// `bytes` of device memory, not initialised.
    pub(crate) fn device(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        Ok(Self(Arc::new(Memory::device(context, bytes)?)))
    }
    /// Takes over `memory`.
    pub(crate) fn new(memory: Memory) -> Self {
        Self(Arc::new(memory))
    }
    /// The memory.
    pub(crate) fn memory(&self) -> &Memory {
        &self.0
    }
    /// Address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.0.address()
    }
    /// Size.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "buffer of {} bytes", self.bytes())
    }
}

/// Pinned slots used in turn. A slot is taken again only when the device has passed the event that
/// was recorded after its last copy, so the host may overwrite it.
pub(crate) struct Ring {
    context: Arc<Context>,
    slots: Vec<Slot>,
    next: usize,
    slot_bytes: usize,
}

struct Slot {
    memory: Memory,
    free: Event,
}

impl Ring {
    /// `slots` slots of `slot_bytes`, allocated when first used.
    pub(crate) fn new(context: &Arc<Context>, slots: usize, slot_bytes: usize) -> Self {
        let slots_held = Vec::with_capacity(slots.max(1));
        Self { context: context.clone(), slots: slots_held, next: 0, slot_bytes }
    }
    fn take(&mut self, stage: &str) -> Result<&mut Slot> {
        if self.slots.len() < self.slots.capacity() {
            let memory = Memory::pinned(&self.context, self.slot_bytes)?;
            self.slots.push(Slot { memory, free: Event::new(&self.context)? });
            self.next = self.slots.len() - 1;
        }
        let index = self.next % self.slots.len();
        self.next = index + 1;
        let slot = &mut self.slots[index];
        slot.free.wait(stage)?;
        Ok(slot)
    }
    /// Copies `source` to `target`; the bytes are taken before the call returns.
    pub(crate) fn write(
        &mut self,
        stage: &str,
        stream: &Stream,
        source: &[u8],
        target: &Memory,
        offset: usize,
    ) -> Result<()> {
        let chunk_bytes = self.slot_bytes;
        for (index, chunk) in source.chunks(chunk_bytes).enumerate() {
            let slot = self.take(stage)?;
            let host = slot.memory.host_mut().and_then(|host| host.get_mut(..chunk.len()));
            let host = host.ok_or_else(|| Error::device(stage, "staging is not in host memory"))?;
            host.copy_from_slice(chunk);
            let at = offset + index * chunk_bytes;
            stream.copy(stage, (&slot.memory, 0), (target, at), chunk.len())?;
            slot.free.record(stage, stream)?;
        }
        Ok(())
    }
    /// Waits for the stream and copies bytes of `source` to `target`; two slots overlap the copy
    /// over the bus with the copy in host memory.
    pub(crate) fn read(
        &mut self,
        stage: &str,
        stream: &Stream,
        source: &Memory,
        offset: usize,
        target: &mut [u8],
    ) -> Result<()> {
        let chunk_bytes = self.slot_bytes;
        for (index, chunk) in target.chunks_mut(chunk_bytes).enumerate() {
            let slot = self.take(stage)?;
            let at = offset + index * chunk_bytes;
            stream.copy(stage, (source, at), (&slot.memory, 0), chunk.len())?;
            slot.free.record(stage, stream)?;
            slot.free.wait(stage)?;
            let host = slot.memory.host_mut().and_then(|host| host.get(..chunk.len()));
            let host = host.ok_or_else(|| Error::device(stage, "staging is not in host memory"))?;
            chunk.copy_from_slice(host);
        }
        Ok(())
    }
}

/// Workspace that all programs share: they run one after the other on one stream. It only grows; a
/// program keeps the block that it was recorded with, so a replay never meets other memory.
pub(crate) struct Arena {
    block: Option<Buffer>,
    used: usize,
}

/// A piece of workspace.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    pub(crate) buffer: Buffer,
    pub(crate) offset: usize,
}

impl Arena {
    /// Alignment of every piece: enough for any vector access.
    const ALIGN: usize = 256;
    /// First block: covers decode steps, so that most programs share one block.
    const FIRST_BYTES: usize = 16 << 20;

    pub(crate) fn new() -> Self {
        Self { block: None, used: 0 }
    }
    /// Gives everything taken back.
    pub(crate) fn reset(&mut self) {
        self.used = 0;
    }
    /// `bytes` that nobody else has until `reset`. Content is whatever the last op left.
    pub(crate) fn take(&mut self, context: &Arc<Context>, bytes: usize) -> Result<Scratch> {
        let fits = |block: &Buffer| self.used + bytes <= block.bytes();
        let block = match &self.block {
            Some(block) if fits(block) => block.clone(),
            _ => {
                let held = self.block.as_ref().map_or(0, Buffer::bytes);
                let wanted = bytes.max(held + held / 2).max(Self::FIRST_BYTES);
                let block = Buffer::device(context, wanted)?;
                self.block = Some(block.clone());
                self.used = 0;
                block
            }
        };
        let offset = self.used;
        self.used = (offset + bytes).next_multiple_of(Self::ALIGN);
        Ok(Scratch { buffer: block, offset })
    }
}
