//! Device buffers, and the pinned rings through which the host writes, uploads and reads.

use crate::ffi::{Context, Event, Memory, Stream};
use forge_core::Result;
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

/// Pinned memory in sections that are used in turn. A section is entered again only when the device
/// has passed the event recorded after its last copy, so the host may overwrite it.
pub(crate) struct Ring {
    context: Arc<Context>,
    /// Allocated at first use, with one event a section.
    held: Option<(Memory, Vec<Event>)>,
    sections: usize,
    section_bytes: usize,
    current: usize,
    used: usize,
}

impl Ring {
    /// Alignment of copies inside a section.
    const ALIGN: usize = 64;

    /// `sections` of `section_bytes` each.
    pub(crate) fn new(context: &Arc<Context>, sections: usize, section_bytes: usize) -> Self {
        let context = context.clone();
        Self { context, held: None, sections, section_bytes, current: 0, used: 0 }
    }
    /// Largest piece that goes through the ring without filling a section.
    pub(crate) fn section_bytes(&self) -> usize {
        self.section_bytes
    }
    fn hold(&mut self) -> Result<(&mut Memory, &[Event])> {
        let (memory, events) = match self.held.take() {
            Some(held) => self.held.insert(held),
            None => {
                let memory = Memory::pinned(&self.context, self.sections * self.section_bytes)?;
                let events = (0..self.sections).map(|_| Event::new(&self.context));
                self.held.insert((memory, events.collect::<Result<_>>()?))
            }
        };
        Ok((memory, events))
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
        let (sections, section_bytes) = (self.sections, self.section_bytes);
        let (mut current, mut used) = (self.current, self.used);
        let (memory, events) = self.hold()?;
        for (index, chunk) in source.chunks(section_bytes).enumerate() {
            if used + chunk.len() > section_bytes {
                events[current].record(stage, stream)?;
                current = (current + 1) % sections;
                events[current].wait(stage)?;
                used = 0;
            }
            let at = current * section_bytes + used;
            memory.fill(at, chunk)?;
            stream.copy(
                stage,
                (memory, at),
                (target, offset + index * section_bytes),
                chunk.len(),
            )?;
            used = (used + chunk.len()).next_multiple_of(Self::ALIGN);
        }
        (self.current, self.used) = (current, used);
        Ok(())
    }
    /// Waits for the stream and copies bytes of `source` to `target`. With two sections the copy
    /// over the bus runs beside the copy in host memory.
    pub(crate) fn read(
        &mut self,
        stage: &str,
        stream: &Stream,
        source: &Memory,
        offset: usize,
        target: &mut [u8],
    ) -> Result<()> {
        let (sections, section_bytes) = (self.sections, self.section_bytes);
        let (memory, events) = self.hold()?;
        let mut pending: Option<(usize, &mut [u8])> = None;
        for (index, chunk) in target.chunks_mut(section_bytes).enumerate() {
            let section = index % sections;
            if sections == 1 {
                finish(stage, memory, events, section_bytes, pending.take())?;
            }
            let (from, to) = (offset + index * section_bytes, section * section_bytes);
            stream.copy(stage, (source, from), (memory, to), chunk.len())?;
            events[section].record(stage, stream)?;
            finish(stage, memory, events, section_bytes, pending.replace((section, chunk)))?;
        }
        finish(stage, memory, events, section_bytes, pending)
    }
}

/// Waits for the copy into a section and takes its bytes.
fn finish(
    stage: &str,
    memory: &Memory,
    events: &[Event],
    section_bytes: usize,
    pending: Option<(usize, &mut [u8])>,
) -> Result<()> {
    let Some((section, target)) = pending else { return Ok(()) };
    events[section].wait(stage)?;
    memory.copy_out(section * section_bytes, target)
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
