//! Weights on the device. WGSL loads only 32-bit words, so each row is repacked at upload: the main
//! plane of all its blocks (whole words), then the tail plane, the 16-bit fields that would break
//! the alignment of the blocks, then zeros up to a multiple of 16 bytes. The numbers stay the same.

use crate::WgpuBackend;
use crate::memory;
use crate::pipeline::Shader;
use crate::self_test;
use forge_core::backend::Weight;
use forge_core::error::{Error, Result};
use forge_core::weights::host::HostTensor;
use forge_core::weights::quant::{StorageType, grids};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Values that a shader decodes at once; plain rows are padded to whole units.
pub(crate) const UNIT: usize = 16;
/// Repacked bytes handed to the queue at once.
const CHUNK_BYTES: usize = 32 << 20;

/// A shared handle of an uploaded weight: row segments, each in a buffer that one binding covers.
#[derive(Clone)]
pub struct Storage(pub(crate) Arc<[Segment]>);

/// Consecutive rows of one storage type, of one or more whole experts.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) storage: StorageType,
    pub(crate) buffer: wgpu::Buffer,
    /// Codebooks, for the types that have one.
    pub(crate) grids: Option<wgpu::Buffer>,
    /// First output of the segment.
    pub(crate) first_row: usize,
    /// Outputs of each expert.
    pub(crate) rows: usize,
    pub(crate) first_expert: usize,
    pub(crate) experts: usize,
    pub(crate) row_words: usize,
}

/// Bytes of a block that go to the tail plane.
fn tail(storage: StorageType) -> Range<usize> {
    use StorageType as T;
    match storage {
        T::Q4_0 | T::Q5_0 | T::Q8_0 | T::Iq4Nl | T::Iq2Xxs | T::Iq2Xs | T::Iq3Xxs => 0..2,
        T::Q4_1 | T::Q5_1 => 0..4,
        T::Mxfp4 => 0..1,
        T::Q2_K => 80..84,
        T::Q3_K => 108..110,
        T::Q6_K => 208..210,
        T::Q4_K | T::Q5_K | T::Iq4Xs | T::F32 | T::F16 | T::Bf16 => 0..0,
    }
}

/// 32-bit words of a repacked row.
fn row_words(storage: StorageType, columns: usize) -> usize {
    let (values, bytes) = storage.block();
    if values == 1 {
        return columns.div_ceil(UNIT) * UNIT * bytes / 4;
    }
    let tail = tail(storage).len();
    let blocks = columns / values;
    let words = blocks * (bytes - tail) / 4 + (blocks * tail.div_ceil(2)).div_ceil(2);
    words.div_ceil(4) * 4
}

/// Repacks one row into zeroed memory.
fn repack(storage: StorageType, row: &[u8], out: &mut [u8]) {
    let tail = tail(storage);
    if tail.is_empty() {
        out[..row.len()].copy_from_slice(row);
        return;
    }
    let bytes = storage.block().1;
    let (main, half) = (bytes - tail.len(), tail.len().next_multiple_of(2));
    let (mains, tails) = out.split_at_mut(row.len() / bytes * main);
    let places = mains.chunks_exact_mut(main).zip(tails.chunks_exact_mut(half));
    for (block, (target, target_tail)) in row.chunks_exact(bytes).zip(places) {
        target[..tail.start].copy_from_slice(&block[..tail.start]);
        target[tail.start..].copy_from_slice(&block[tail.end..]);
        target_tail[..tail.len()].copy_from_slice(&block[tail.clone()]);
    }
}

/// Files that decode a type, and the place of its codebook in the buffer of [`codebooks`].
fn decoder(storage: StorageType) -> (&'static [&'static str], Option<u32>) {
    use StorageType as T;
    match storage {
        T::F32 => (&["quant/words_vec4", "quant/common", "quant/f32"], None),
        T::F16 => (&["quant/words_vec4", "quant/common", "quant/f16"], None),
        T::Bf16 => (&["quant/words_vec4", "quant/common", "quant/bf16"], None),
        T::Q4_0 => (&["quant/words_scalar", "quant/common", "quant/q4_0"], None),
        T::Q4_1 => (&["quant/words_scalar", "quant/common", "quant/q4_1"], None),
        T::Q5_0 => (&["quant/words_scalar", "quant/common", "quant/q5_0"], None),
        T::Q5_1 => (&["quant/words_scalar", "quant/common", "quant/q5_1"], None),
        T::Q8_0 => (&["quant/words_vec4", "quant/common", "quant/q8_0"], None),
        T::Q2_K => (&["quant/words_scalar", "quant/common", "quant/q2_k"], None),
        T::Q3_K => (&["quant/words_scalar", "quant/common", "quant/q3_k"], None),
        T::Q4_K => (&["quant/words_scalar", "quant/common", "quant/k_scales", "quant/q4_k"], None),
        T::Q5_K => (&["quant/words_scalar", "quant/common", "quant/k_scales", "quant/q5_k"], None),
        T::Q6_K => (&["quant/words_scalar", "quant/common", "quant/q6_k"], None),
        T::Iq2Xxs => {
            (&["quant/words_scalar", "quant/common", "quant/codebook", "quant/iq2_xxs"], Some(0))
        }
        T::Iq2Xs => {
            (&["quant/words_scalar", "quant/common", "quant/codebook", "quant/iq2_xs"], Some(512))
        }
        T::Iq3Xxs => {
            (&["quant/words_scalar", "quant/common", "quant/codebook", "quant/iq3_xxs"], Some(1536))
        }
        T::Iq4Nl => {
            (&["quant/words_scalar", "quant/common", "quant/iq4_values", "quant/iq4_nl"], None)
        }
        T::Iq4Xs => {
            (&["quant/words_scalar", "quant/common", "quant/iq4_values", "quant/iq4_xs"], None)
        }
        T::Mxfp4 => (&["quant/words_scalar", "quant/common", "quant/mxfp4"], None),
    }
}

/// A variant of `file` that decodes `storage`. `rest` is the access of the bindings after weights
/// and codebooks, with and without the latter.
pub(crate) fn weight_shader(
    file: &'static str,
    storage: StorageType,
    with_grids: &'static str,
    without: &'static str,
    workgroup: u32,
) -> Shader {
    let (files, grid) = decoder(storage);
    let access = if grid.is_some() { with_grids } else { without };
    let shader = Shader::new(file, access, workgroup).snippets(files);
    match grid {
        Some(place) => shader.constant("GRID", place),
        None => shader,
    }
}

/// Codebooks of iq2_xxs, iq2_xs and iq3_xxs, one after the other, as words.
fn codebooks() -> Vec<u32> {
    let octets = grids::IQ2_XXS_GRID.iter().chain(&grids::IQ2_XS_GRID);
    octets
        .flat_map(|row| [*row as u32, (row >> 32) as u32])
        .chain(grids::IQ3_XXS_GRID.iter().copied())
        .collect()
}

/// Parts of equal type that follow each other: their rows become one run of outputs.
struct Group<'p> {
    parts: &'p [HostTensor],
    storage: StorageType,
    rows: usize,
    row_words: usize,
}

/// Outputs of one expert of a part.
fn part_rows(part: &HostTensor, experts: usize) -> usize {
    part.total_rows() / experts
}

impl WgpuBackend {
    /// [`forge_core::Backend::upload`].
    pub(crate) fn upload_parts(&self, parts: &[HostTensor]) -> Result<Weight<Self>> {
        let first = parts.first().ok_or_else(|| Error::invalid("upload", "no parts"))?;
        let (experts, columns) = (experts(first), first.columns());
        for part in parts {
            let fits = part.shape.len() >= 2 && self::experts(part) == experts;
            if !fits || part.columns() != columns || columns == 0 || experts == 0 {
                return Err(Error::invalid(
                    &*part.name,
                    format!("shape {:?} does not stack on {:?}", part.shape, first.shape),
                ));
            }
        }
        let mut segments = Vec::new();
        let mut first_row = 0;
        for parts in parts.chunk_by(|a, b| a.storage == b.storage) {
            let storage = parts[0].storage;
            self_test::storage(self, storage)?;
            let rows = parts.iter().map(|part| part_rows(part, experts)).sum();
            let group = Group { parts, storage, rows, row_words: row_words(storage, columns) };
            self.upload_group(&group, experts, first_row, &mut segments)?;
            first_row += rows;
        }
        memory::flush(&self.device)?;
        Ok(Weight {
            storage: Storage(segments.into()),
            experts,
            rows: first_row,
            columns,
            bytes: parts.iter().map(|part| part.data.len() as u64).sum(),
        })
    }

    /// Splits a group by experts, or by rows where one expert is larger than a binding.
    fn upload_group(
        &self,
        group: &Group<'_>,
        experts: usize,
        first_row: usize,
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        let limit = usize::try_from(self.device.binding_bytes()).unwrap_or(usize::MAX);
        let row_bytes = group.row_words * 4;
        let experts_per_segment = limit / (group.rows * row_bytes).max(1);
        let rows_per_segment = (limit / row_bytes).min(group.rows);
        if group.rows == 0 || rows_per_segment == 0 {
            let reason = format!("a row of {row_bytes} bytes, {} rows", group.rows);
            return Err(Error::unsupported(format!("weight {}", group.parts[0].name), reason));
        }
        let step = experts_per_segment.max(1);
        for expert in (0..experts).step_by(step) {
            let count = step.min(experts - expert);
            for row in (0..group.rows).step_by(rows_per_segment) {
                let rows = rows_per_segment.min(group.rows - row);
                let bytes = (count * rows * row_bytes) as u64;
                let buffer = memory::create(&self.device, &group.parts[0].name, bytes)?;
                let segment = Segment {
                    storage: group.storage,
                    buffer,
                    grids: self.grids(group.storage)?,
                    first_row: first_row + row,
                    rows,
                    first_expert: expert,
                    experts: count,
                    row_words: group.row_words,
                };
                self.fill(group, experts, row, &segment)?;
                segments.push(segment);
            }
        }
        Ok(())
    }

    /// Repacks rows `row..` of the group into the segment's buffer.
    fn fill(&self, group: &Group<'_>, experts: usize, row: usize, segment: &Segment) -> Result<()> {
        let mut sources = Vec::with_capacity(segment.experts * segment.rows);
        for expert in segment.first_expert..segment.first_expert + segment.experts {
            let mut start = 0;
            for part in group.parts {
                let rows = part_rows(part, experts);
                let from = row.max(start);
                let to = (row + segment.rows).min(start + rows);
                let row_bytes = part.row_bytes();
                sources.extend((from..to.max(from)).map(|r| {
                    let index = expert * rows + r - start;
                    &part.data.as_slice()[index * row_bytes..(index + 1) * row_bytes]
                }));
                start += rows;
            }
        }
        let row_bytes = segment.row_words * 4;
        let mut written = 0;
        for rows in sources.chunks((CHUNK_BYTES / row_bytes).max(1)) {
            let mut bytes = vec![0; rows.len() * row_bytes];
            let targets = bytes.par_chunks_exact_mut(row_bytes).zip(rows);
            targets.for_each(|(target, row)| repack(segment.storage, row, target));
            memory::write_part(&self.device, &segment.buffer, written, &bytes)?;
            memory::flush(&self.device)?;
            written += bytes.len() as u64;
        }
        Ok(())
    }

    /// The codebooks, uploaded with the first weight that needs them.
    fn grids(&self, storage: StorageType) -> Result<Option<wgpu::Buffer>> {
        if decoder(storage).1.is_none() {
            return Ok(None);
        }
        if let Some(buffer) = self.codebooks.get() {
            return Ok(Some(buffer.clone()));
        }
        let words = codebooks();
        let buffer = memory::create(&self.device, "codebooks", words.len() as u64 * 4)?;
        memory::write_part(&self.device, &buffer, 0, bytemuck::cast_slice(&words))?;
        Ok(Some(self.codebooks.get_or_init(|| buffer).clone()))
    }
}

/// Experts of a tensor: the first of three dimensions.
fn experts(part: &HostTensor) -> usize {
    if part.shape.len() == 3 { part.shape[0] } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repacked_rows_are_whole_words_and_lose_no_byte() {
        for storage in StorageType::ALL {
            let (values, bytes) = storage.block();
            let columns = values.max(16) * 3;
            let row: Vec<u8> = (0..columns / values * bytes).map(|i| (i % 251) as u8 + 1).collect();
            let mut out = vec![0; row_words(storage, columns) * 4];
            repack(storage, &row, &mut out);
            let mut kept: Vec<u8> = out.iter().copied().filter(|b| *b != 0).collect();
            let mut source = row.clone();
            kept.sort_unstable();
            source.sort_unstable();
            assert_eq!(kept, source, "{storage}");
        }
    }
}
