//! Checkpoint blocks -> records of `kernels/records.cuh`: the same numbers in the order in which a
//! warp reads them. Pure functions; 16 rows at a time, so that callers can run them in parallel.

mod codebook;
mod float;
mod k;
mod legacy;
mod record;
#[cfg(test)]
mod tests;

use forge_core::weights::quant::StorageType;
use record::Row;

/// Rows of a record.
pub(crate) const TILE_ROWS: usize = 16;

/// Size of the records of a storage type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Columns of a record.
    pub(crate) columns: usize,
    /// Bytes of a record; a multiple of 16.
    pub(crate) bytes: usize,
}

impl Layout {
    /// Layout of a storage type.
    pub(crate) const fn of(storage: StorageType) -> Self {
        use StorageType as S;
        let (columns, bytes) = match storage {
            S::F32 => (32, 2048),
            S::F16 | S::Bf16 => (64, 2048),
            S::Q8_0 => (128, 2176),
            S::Q4_0 | S::Iq4Nl | S::Q4_K => (256, 2304),
            S::Q4_1 => (256, 2560),
            S::Q5_0 | S::Q5_K => (256, 2816),
            S::Q5_1 => (256, 3072),
            S::Mxfp4 | S::Iq4Xs => (256, 2176),
            S::Q2_K => (256, 1344),
            S::Q3_K => (256, 1792),
            S::Q6_K => (256, 3360),
            S::Iq2Xxs => (256, 1056),
            S::Iq2Xs => (256, 1184),
            S::Iq3Xxs => (256, 1568),
        };
        Self { columns, bytes }
    }
    /// Records of one row tile of a matrix.
    pub(crate) const fn chunks(self, columns: usize) -> usize {
        columns.div_ceil(self.columns)
    }
    /// Bytes of one row tile of a matrix.
    pub(crate) const fn tile_bytes(self, columns: usize) -> usize {
        self.chunks(columns) * self.bytes
    }
}

/// Packs up to 16 rows of whole blocks, each with its type, into `out`, which is zeroed here and takes
/// [`Layout::tile_bytes`]; all types have the same records. `scales` gets a power of two for each
/// row: floats are stored divided by it, and quantised values divided by it fit f16.
pub(crate) fn pack_tile(rows: &[(StorageType, &[u8])], out: &mut [u8], scales: &mut [f32]) {
    debug_assert!(rows.len() <= TILE_ROWS && rows.len() <= scales.len());
    out.fill(0);
    scales.fill(1.0);
    for (slot, (&(storage, bytes), scale)) in rows.iter().zip(scales).enumerate() {
        *scale = match block_packer(storage) {
            None => float::pack(storage, bytes, slot, out),
            Some(pack_block) => pack_row(storage, pack_block, bytes, slot, out),
        };
    }
}

fn pack_row(
    storage: StorageType,
    pack_block: PackBlock,
    bytes: &[u8],
    slot: usize,
    out: &mut [u8],
) -> f32 {
    let layout = Layout::of(storage);
    let (block_values, block_bytes) = storage.block();
    let mut bound = 0.0f32;
    for (index, block) in bytes.chunks_exact(block_bytes).enumerate() {
        let column = index * block_values;
        let start = column / layout.columns * layout.bytes;
        let record = &mut out[start..start + layout.bytes];
        let mut row = Row { record, g: slot % 8, r: slot / 8 };
        bound = bound.max(pack_block(block, &mut row, column % layout.columns / 32));
    }
    row_scale(bound)
}

type PackBlock = fn(&[u8], &mut Row<'_>, usize) -> f32;

/// Packer of one block; none for floats, whose rows are packed as a whole.
fn block_packer(storage: StorageType) -> Option<PackBlock> {
    use StorageType as S;
    Some(match storage {
        S::F32 | S::F16 | S::Bf16 => return None,
        S::Q8_0 => legacy::q8_0,
        S::Q4_0 => legacy::q4_0,
        S::Q4_1 => legacy::q4_1,
        S::Q5_0 => legacy::q5_0,
        S::Q5_1 => legacy::q5_1,
        S::Iq4Nl => legacy::iq4_nl,
        S::Mxfp4 => legacy::mxfp4,
        S::Q2_K => k::q2_k,
        S::Q3_K => k::q3_k,
        S::Q4_K => k::q4_k,
        S::Q5_K => k::q5_k,
        S::Q6_K => k::q6_k,
        S::Iq4Xs => k::iq4_xs,
        S::Iq2Xxs => codebook::iq2_xxs,
        S::Iq2Xs => codebook::iq2_xs,
        S::Iq3Xxs => codebook::iq3_xxs,
    })
}

/// The power of two that divides `bound` into `[2^14, 2^15)`, so that f16 neither overflows nor loses
/// small values of the row; 1 for a row of zeros or one that is not finite.
fn row_scale(bound: f32) -> f32 {
    let exponent = bound.to_bits() >> 23;
    if bound <= 0.0 || exponent >= 255 {
        return 1.0;
    }
    // Bounded so that the scale and its inverse are normal numbers.
    f32::from_bits((exponent.clamp(15, 254) - 14) << 23)
}
