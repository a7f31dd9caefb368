//! Device memory: buffers that may span several WebGPU buffers, and reading back.

use crate::device::Device;
use forge_core::error::{Error, Result};
use forge_core::tensor::Tensor;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes handed to the queue before it is flushed, so that uploads need little staging memory.
const FLUSH_BYTES: usize = 64 << 20;

/// Most parts of a tensor: with the smallest binding of WebGPU 128 GiB, more than any device has. A
/// driver that overcommits memory would otherwise hand out part after part.
const MAX_PARTS: u64 = 1024;

/// A shared handle of device memory. A tensor larger than one binding lies in several parts that
/// each hold whole rows; the ops that take such tensors (KV pools, recurrent states) run once per
/// part.
#[derive(Clone)]
pub struct Buffer(Arc<Parts>);

struct Parts {
    parts: Vec<wgpu::Buffer>,
    /// Bytes of every part but the last.
    part_bytes: u64,
}

/// Consecutive rows of a tensor in one WebGPU buffer.
pub(crate) struct RowPart {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    /// First element of row `first_row` in `buffer`.
    pub(crate) offset: usize,
}

impl Buffer {
    /// The only WebGPU buffer, or `None` if there are several.
    pub(crate) fn single(&self) -> Option<&wgpu::Buffer> {
        match &*self.0.parts {
            [buffer] => Some(buffer),
            _ => None,
        }
    }

    /// Pieces of the byte range: buffer, offset in it, length.
    fn pieces(&self, offset: u64, len: u64) -> Vec<(&wgpu::Buffer, u64, u64)> {
        let mut pieces = Vec::new();
        for (i, buffer) in self.0.parts.iter().enumerate() {
            let start = i as u64 * self.0.part_bytes;
            let end = start + buffer.size();
            let (from, to) = (offset.max(start), (offset + len).min(end));
            if from < to {
                pieces.push((buffer, from - start, to - from));
            }
        }
        pieces
    }

    /// The parts of a tensor over this buffer.
    pub(crate) fn row_parts<B>(&self, tensor: &Tensor<B>) -> Vec<RowPart>
    where
        B: forge_core::Backend,
    {
        if let Some(buffer) = self.single() {
            return vec![RowPart {
                buffer: buffer.clone(),
                first_row: 0,
                rows: tensor.rows(),
                offset: tensor.offset,
            }];
        }
        let part_elements = self.0.part_bytes as usize / tensor.dtype.bytes();
        let stride = tensor.row_stride.max(1);
        let mut parts = Vec::new();
        let mut first_row = 0;
        while first_row < tensor.rows() {
            let element = tensor.offset + first_row * stride;
            let (part, offset) = (element / part_elements, element % part_elements);
            let rows = ((part_elements - offset) / stride).clamp(1, tensor.rows() - first_row);
            let Some(buffer) = self.0.parts.get(part) else { break };
            parts.push(RowPart { buffer: buffer.clone(), first_row, rows, offset });
            first_row += rows;
        }
        parts
    }
}

/// A zeroed buffer for `rows` rows of `row_bytes`, in parts of whole rows if one binding cannot
/// cover it.
pub(crate) fn allocate(
    device: &Device,
    what: &str,
    rows: usize,
    row_bytes: usize,
) -> Result<Buffer> {
    let total = (rows as u64).saturating_mul(row_bytes as u64);
    let limit = device.binding_bytes();
    let part_bytes = if total <= limit {
        total.div_ceil(16).max(1) * 16
    } else {
        // A row of a part must stay 4-byte aligned for copies.
        let rows_per_part = limit / row_bytes as u64;
        if rows_per_part == 0 || !row_bytes.is_multiple_of(4) {
            return Err(Error::OutOfMemory {
                what: format!("a row of {what}"),
                needed: row_bytes as u64,
                available: limit,
                advice: "the adapter cannot bind more at once; use fewer rows".to_owned(),
            });
        }
        if total / (rows_per_part * row_bytes as u64) >= MAX_PARTS {
            return Err(Error::OutOfMemory {
                what: what.to_owned(),
                needed: total,
                available: MAX_PARTS * limit,
                advice: "shorten the context or use fewer slots".to_owned(),
            });
        }
        rows_per_part * row_bytes as u64
    };
    let mut parts = Vec::new();
    let mut start = 0;
    while start < total.max(1) {
        let size = if total <= part_bytes { part_bytes } else { part_bytes.min(total - start) };
        parts.push(create(device, what, size)?);
        start += part_bytes;
    }
    Ok(Buffer(Arc::new(Parts { parts, part_bytes })))
}

/// One zeroed WebGPU buffer. WebGPU zeroes memory before its first use.
pub(crate) fn create(device: &Device, what: &str, size: u64) -> Result<wgpu::Buffer> {
    let usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
    let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    device.scoped(what, || device.device.create_buffer(&descriptor)).map_err(|error| {
        if error.to_string().to_lowercase().contains("memory") {
            Error::OutOfMemory {
                what: what.to_owned(),
                needed: size,
                available: 0,
                advice: "close other programs, shorten the context or use a smaller model"
                    .to_owned(),
            }
        } else {
            error
        }
    })
}

/// Copies bytes into a buffer before the next submit, in pieces that bound the staging memory.
pub(crate) fn write(device: &Device, target: &Buffer, offset: u64, source: &[u8]) -> Result<()> {
    let mut start = 0;
    for (buffer, offset, len) in target.pieces(offset, source.len() as u64) {
        write_part(device, buffer, offset, &source[start..start + len as usize])?;
        start += len as usize;
    }
    Ok(())
}

/// [`write()`] into one WebGPU buffer.
pub(crate) fn write_part(
    device: &Device,
    buffer: &wgpu::Buffer,
    offset: u64,
    source: &[u8],
) -> Result<()> {
    let mut at = offset;
    for chunk in source.chunks(FLUSH_BYTES) {
        device.scoped("write", || device.queue.write_buffer(buffer, at, chunk))?;
        at += chunk.len() as u64;
        if chunk.len() == FLUSH_BYTES {
            flush(device)?;
        }
    }
    Ok(())
}

/// Submits pending writes and waits, which frees their staging memory.
pub(crate) fn flush(device: &Device) -> Result<()> {
    device.queue.submit([]);
    device
        .device
        .poll(wgpu::PollType::wait_indefinitely())
        .map_err(|error| Error::device("write", error))?;
    device.failure.check("write")
}

/// The mapped buffer that read-backs pass through; it grows to the largest one.
#[derive(Default)]
pub(crate) struct Staging(Mutex<Option<wgpu::Buffer>>);

impl Staging {
    /// Waits for everything submitted and copies bytes of `source`.
    pub(crate) fn read(
        &self,
        device: &Device,
        source: &Buffer,
        offset: u64,
        target: &mut [u8],
    ) -> Result<()> {
        let mut start = 0;
        for (buffer, offset, len) in source.pieces(offset, target.len() as u64) {
            self.read_part(device, buffer, offset, &mut target[start..start + len as usize])?;
            start += len as usize;
        }
        Ok(())
    }

    fn read_part(
        &self,
        device: &Device,
        source: &wgpu::Buffer,
        offset: u64,
        target: &mut [u8],
    ) -> Result<()> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Copies move whole words; the bytes beyond the target are dropped.
        let first = offset / 4 * 4;
        let skip = (offset - first) as usize;
        let size = (skip + target.len()).div_ceil(4) as u64 * 4;
        let staging = match slot.take() {
            Some(buffer) if buffer.size() >= size => buffer,
            _ => device.scoped("read", || {
                device.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("read back"),
                    size: size.next_power_of_two(),
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            })?,
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        device.scoped("read", || {
            let mut encoder = device.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(source, first, &staging, 0, size);
            device.queue.submit([encoder.finish()]);
            staging.map_async(wgpu::MapMode::Read, 0..size, move |result| {
                // The receiver is gone only if the wait below failed.
                let _ = sender.send(result);
            });
        })?;
        device
            .device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|error| Error::device("read", error))?;
        device.failure.check("read")?;
        receiver
            .recv()
            .map_err(|_| Error::device("read", "the read-back was dropped"))?
            .map_err(|error| Error::device("read", error))?;
        let view =
            staging.get_mapped_range(0..size).map_err(|error| Error::device("read", error))?;
        target.copy_from_slice(&view[skip..skip + target.len()]);
        drop(view);
        staging.unmap();
        *slot = Some(staging);
        Ok(())
    }
}
