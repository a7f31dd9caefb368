//! Tables that are only looked up by row: raw blocks, in host memory that the device reads over the
//! bus, so that an embedding of a gigabyte costs none on the card.

use crate::device::Device;
use crate::memory::Buffer;
use forge_core::Result;
use forge_core::weights::host::HostTensor;
use forge_core::weights::quant::StorageType;

/// One matrix of a table.
#[derive(Debug)]
pub(crate) struct LookupPart {
    /// Type of its blocks.
    pub(crate) storage: StorageType,
    /// The rows as in the file.
    pub(crate) buffer: Buffer,
    /// Rows.
    pub(crate) rows: usize,
    /// Bytes of a row.
    pub(crate) row_bytes: usize,
}

/// Places the rows of `parts`.
///
/// # Errors
/// Device errors; a refused pinned allocation is logged and answered with device memory.
pub(crate) fn upload(device: &Device, parts: &[HostTensor]) -> Result<Vec<LookupPart>> {
    let place = |part: &HostTensor| {
        Ok(LookupPart {
            storage: part.storage,
            buffer: device.upload_mapped("upload", part.data.as_slice())?,
            rows: part.total_rows(),
            row_bytes: part.row_bytes(),
        })
    };
    parts.iter().map(place).collect()
}
