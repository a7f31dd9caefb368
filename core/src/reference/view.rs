//! Typed views of CPU buffers. An output that shares its buffer with an input is a shape error
//! here, because the other backends cannot do it.

use super::{Cpu, CpuBuffer};
use crate::error::Result;
use crate::tensor::{Tensor, shape_error};
use rayon::prelude::*;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// A locked view for reading.
pub(super) struct View<'a> {
    data: RwLockReadGuard<'a, Vec<u32>>,
    offset: usize,
    byte_offset: usize,
    stride: usize,
    len: usize,
}

impl View<'_> {
    /// Row `r` as f32.
    pub(super) fn row(&self, r: usize) -> &[f32] {
        let start = self.offset + r * self.stride;
        bytemuck::cast_slice(&self.data[start..start + self.len])
    }
    /// Row `r` as i32.
    pub(super) fn ints(&self, r: usize) -> &[i32] {
        let start = self.offset + r * self.stride;
        bytemuck::cast_slice(&self.data[start..start + self.len])
    }
    /// The first value of row `r` of an i32 vector.
    pub(super) fn int(&self, r: usize) -> i32 {
        self.ints(r)[0]
    }
    /// Everything from the first row on, as f32, and the distance between rows.
    pub(super) fn flat(&self) -> (&[f32], usize) {
        (bytemuck::cast_slice(&self.data[self.offset..]), self.stride)
    }
    /// Raw bytes from the first element on.
    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.data)[self.byte_offset..]
    }
}

/// A locked view for writing.
pub(super) struct ViewMut<'a> {
    data: RwLockWriteGuard<'a, Vec<u32>>,
    offset: usize,
    byte_offset: usize,
    stride: usize,
    len: usize,
    rows: usize,
}

impl ViewMut<'_> {
    /// Row `r` as f32.
    pub(super) fn row(&mut self, r: usize) -> &mut [f32] {
        let start = self.offset + r * self.stride;
        bytemuck::cast_slice_mut(&mut self.data[start..start + self.len])
    }
    /// Row `r` as i32.
    pub(super) fn ints(&mut self, r: usize) -> &mut [i32] {
        let start = self.offset + r * self.stride;
        bytemuck::cast_slice_mut(&mut self.data[start..start + self.len])
    }
    /// Everything from the first row on, and the distance between rows.
    pub(super) fn flat(&mut self) -> (&mut [f32], usize) {
        (bytemuck::cast_slice_mut(&mut self.data[self.offset..]), self.stride)
    }
    /// Rows in parallel: `(row index, values)`.
    pub(super) fn par_rows(&mut self) -> impl IndexedParallelIterator<Item = (usize, &mut [f32])> {
        let (len, rows, stride) = (self.len, self.rows, self.stride.max(1));
        let flat: &mut [f32] = bytemuck::cast_slice_mut(&mut self.data[self.offset..]);
        flat.par_chunks_mut(stride).take(rows).map(move |row| &mut row[..len]).enumerate()
    }
    /// Raw bytes from the first element on.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.data)[self.byte_offset..]
    }
}

/// Locks `t` for reading.
pub(super) fn read<'a>(op: &'static str, t: &'a Tensor<Cpu>) -> Result<View<'a>> {
    let data = lock(&t.buffer).try_read().map_err(|_| shared(op, t))?;
    let byte_offset = t.offset * t.dtype.bytes();
    Ok(View { data, offset: t.offset, byte_offset, stride: t.row_stride, len: t.row_len() })
}

/// Locks `t` for writing.
pub(super) fn write<'a>(op: &'static str, t: &'a Tensor<Cpu>) -> Result<ViewMut<'a>> {
    let data = lock(&t.buffer).try_write().map_err(|_| shared(op, t))?;
    let (len, rows) = (t.row_len(), t.rows());
    let byte_offset = t.offset * t.dtype.bytes();
    Ok(ViewMut { data, offset: t.offset, byte_offset, stride: t.row_stride, len, rows })
}

fn lock(buffer: &CpuBuffer) -> &std::sync::RwLock<Vec<u32>> {
    &buffer.0
}

fn shared(op: &'static str, t: &Tensor<Cpu>) -> crate::Error {
    shape_error(op, "out", "a buffer that no input of the op uses", format!("{t:?}"))
}
