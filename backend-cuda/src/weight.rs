//! Uploaded weights: records for `linear`, raw blocks for lookups.

use crate::Cuda;
use crate::device::Device;
use crate::lookup::{self, LookupPart};
use crate::memory::Buffer;
use crate::repack::{Layout as RecordLayout, TILE_ROWS, pack_tile};
use forge_core::tensor::shape_error;
use forge_core::weights::host::HostTensor;
use forge_core::weights::quant::StorageType;
use forge_core::{Error, Residence, Result, Weight};
use rayon::prelude::*;
use std::sync::Arc;

/// Packed bytes that are sent at a time.
const SLAB_BYTES: usize = 32 << 20;

/// An uploaded weight: its parts, stacked by rows.
#[derive(Clone, Debug)]
pub struct CudaWeight {
    layout: Layout,
}

#[derive(Clone, Debug)]
enum Layout {
    /// Raw rows, for [`Residence::Lookup`].
    Lookup(Arc<Vec<LookupPart>>),
    /// Records, for [`Residence::Device`].
    Records(Arc<Vec<Part>>),
}

impl CudaWeight {
    /// Raw rows, if the weight was uploaded for [`Residence::Lookup`].
    pub(crate) fn lookup(&self) -> Option<&[LookupPart]> {
        match &self.layout {
            Layout::Lookup(parts) => Some(parts),
            Layout::Records(_) => None,
        }
    }
    /// Records, if the weight was uploaded for [`Residence::Device`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] naming `op` for a lookup table.
    pub(crate) fn parts(&self, op: &'static str) -> Result<&[Part]> {
        match &self.layout {
            Layout::Records(parts) => Ok(parts),
            Layout::Lookup(_) => {
                Err(Error::unsupported(op, "the weight was uploaded for lookups only"))
            }
        }
    }
}

/// One matrix of a weight. Neighbours with one record layout were merged.
#[derive(Debug)]
pub(crate) struct Part {
    /// Storage type; BF16 is packed as F16.
    pub(crate) storage: StorageType,
    /// Records `[experts, tiles, chunks]`, then a scale for each row of each tile.
    pub(crate) buffer: Buffer,
    /// Output rows (of one expert).
    pub(crate) rows: usize,
    /// Tiles of 16 rows of one expert.
    pub(crate) tiles: usize,
    /// Records of a tile.
    pub(crate) chunks: usize,
    /// First byte of the row scales, f32 `[experts, tiles * 16]`.
    pub(crate) scale_offset: usize,
}

/// Puts `parts` on the device.
pub(crate) fn upload(
    device: &Device,
    parts: &[HostTensor],
    residence: Residence,
) -> Result<Weight<Cuda>> {
    let (experts, columns) = common_shape(parts)?;
    let layout = match residence {
        Residence::Lookup => Layout::Lookup(Arc::new(lookup::upload(device, parts)?)),
        Residence::Device => {
            let upload = |run| upload_run(device, run, experts, columns);
            Layout::Records(Arc::new(runs(parts).into_iter().map(upload).collect::<Result<_>>()?))
        }
    };
    Ok(Weight {
        storage: CudaWeight { layout },
        experts,
        rows: parts.iter().map(|part| part.total_rows() / experts).sum(),
        columns,
        bytes: parts.iter().map(|part| part.data.len() as u64).sum(),
    })
}

/// Experts and columns, which all parts share.
fn common_shape(parts: &[HostTensor]) -> Result<(usize, usize)> {
    let shape = |part: &HostTensor| {
        let experts = if part.shape.len() == 3 { part.shape[0] } else { 1 };
        (experts, part.columns())
    };
    let first = parts.first().map(shape).filter(|&(experts, columns)| experts > 0 && columns > 0);
    let (experts, columns) =
        first.ok_or_else(|| Error::invalid("weight", "no parts, or a part without values"))?;
    for part in parts {
        if part.shape.len() > 3 || shape(part) != (experts, columns) {
            let expected = format!("{experts} experts of {columns} columns");
            return Err(shape_error("upload", "part", expected, format!("{:?}", part.shape)));
        }
    }
    Ok((experts, columns))
}

/// The type whose records a part has.
fn record_type(storage: StorageType) -> StorageType {
    if storage == StorageType::Bf16 { StorageType::F16 } else { storage }
}

/// Neighbours with one record type, so that one launch covers them.
fn runs(parts: &[HostTensor]) -> Vec<&[HostTensor]> {
    parts.chunk_by(|a, b| record_type(a.storage) == record_type(b.storage)).collect()
}

/// Rows of a run of parts, by expert and number.
struct Rows<'a> {
    parts: &'a [HostTensor],
    experts: usize,
    /// Rows of one expert.
    count: usize,
}

impl<'a> Rows<'a> {
    fn new(parts: &'a [HostTensor], experts: usize) -> Self {
        let count = parts.iter().map(|part| part.total_rows() / experts).sum();
        Self { parts, experts, count }
    }
    fn tiles(&self) -> usize {
        self.count.div_ceil(TILE_ROWS)
    }
    /// Type and bytes of a row; `None` past the last one.
    fn get(&self, expert: usize, mut row: usize) -> Option<(StorageType, &'a [u8])> {
        for part in self.parts {
            let rows = part.total_rows() / self.experts;
            if row < rows {
                let bytes = part.row_bytes();
                let start = (expert * rows + row) * bytes;
                return Some((part.storage, part.data.as_slice().get(start..start + bytes)?));
            }
            row -= rows;
        }
        None
    }
    /// Packs row tile `item` of all experts' tiles. A tile that two parts of different types share
    /// (BF16 beside F16) is packed type by type.
    fn pack(&self, item: usize, out: &mut [u8], scales: &mut [f32]) {
        let (expert, tile) = (item / self.tiles(), item % self.tiles());
        let first = tile * TILE_ROWS;
        let rows: Vec<_> =
            (first..first + TILE_ROWS).map_while(|row| self.get(expert, row)).collect();
        pack_tile(&rows, out, scales);
    }
}

fn upload_run(
    device: &Device,
    parts: &[HostTensor],
    experts: usize,
    columns: usize,
) -> Result<Part> {
    let rows = Rows::new(parts, experts);
    let storage = record_type(parts[0].storage);
    let layout = RecordLayout::of(storage);
    let tile_bytes = layout.tile_bytes(columns);
    let items = experts * rows.tiles();
    let scale_offset = items * tile_bytes;
    let mut scales = vec![1.0f32; items * TILE_ROWS];
    let buffer = Buffer::device(&device.context, scale_offset + scales.len() * 4)?;
    let slab_tiles = (SLAB_BYTES / tile_bytes).clamp(1, items.max(1));
    let mut slab = vec![0u8; slab_tiles * tile_bytes];
    for (index, scales) in scales.chunks_mut(slab_tiles * TILE_ROWS).enumerate() {
        let first = index * slab_tiles;
        let packed = &mut slab[..scales.len() / TILE_ROWS * tile_bytes];
        packed
            .par_chunks_mut(tile_bytes)
            .zip(scales.par_chunks_mut(TILE_ROWS))
            .enumerate()
            .for_each(|(tile, (out, scales))| rows.pack(first + tile, out, scales));
        device.upload_into("upload", packed, &buffer, first * tile_bytes)?;
    }
    device.upload_into("upload", bytemuck::cast_slice(&scales), &buffer, scale_offset)?;
    Ok(Part {
        storage,
        buffer,
        rows: rows.count,
        tiles: rows.tiles(),
        chunks: layout.chunks(columns),
        scale_offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(storage: StorageType, shape: &[usize], first: u8) -> HostTensor {
        let bytes = storage.tensor_bytes(shape).unwrap();
        let data: Vec<u8> = (0..bytes).map(|i| first.wrapping_add(i as u8)).collect();
        HostTensor::new("part", storage, shape.to_vec(), data.into()).unwrap()
    }

    #[test]
    fn neighbours_of_one_record_type_form_a_run() {
        use StorageType as S;
        let parts = [S::Q8_0, S::Q8_0, S::Q4_0, S::F16, S::Bf16, S::Q8_0];
        let parts: Vec<_> = parts.iter().map(|&s| part(s, &[2, 32], 0)).collect();
        let lengths: Vec<_> = runs(&parts).iter().map(|run| run.len()).collect();
        assert_eq!(lengths, [2, 1, 2, 1]);
    }

    #[test]
    fn rows_of_experts_are_found_part_by_part() {
        let parts =
            [part(StorageType::F32, &[2, 3, 4], 0), part(StorageType::F32, &[2, 2, 4], 100)];
        let rows = Rows::new(&parts, 2);
        assert_eq!((rows.count, rows.tiles()), (5, 1));
        let start = |expert, row| rows.get(expert, row).map(|(_, bytes)| bytes[0]);
        assert_eq!(start(0, 2), Some(32));
        assert_eq!(start(1, 0), Some(48));
        assert_eq!(start(0, 3), Some(100));
        assert_eq!(start(1, 4), Some(148));
        assert_eq!(start(0, 5), None);
    }

    #[test]
    fn parts_must_agree() {
        let parts = [part(StorageType::F32, &[3, 4], 0), part(StorageType::F32, &[3, 8], 0)];
        assert!(common_shape(&parts).is_err());
        assert!(common_shape(&[]).is_err());
        assert_eq!(common_shape(&parts[..1]).unwrap(), (1, 4));
    }
}
