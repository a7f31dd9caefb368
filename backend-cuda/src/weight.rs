//! Uploaded weights.

use crate::device::Device;
use crate::memory::Buffer;
use forge_core::weights::host::HostTensor;
use forge_core::weights::quant::StorageType;
use forge_core::{Error, Residence, Result};
use std::sync::Arc;

/// An uploaded weight: its parts, stacked by rows.
#[derive(Clone, Debug)]
pub struct CudaWeight {
    pub(crate) parts: Arc<Vec<Part>>,
}

/// One matrix of a weight.
#[derive(Debug)]
pub(crate) struct Part {
    /// Storage type of the checkpoint.
    pub(crate) storage: StorageType,
    /// Bytes on the device.
    pub(crate) buffer: Buffer,
    /// Output rows (of one expert).
    pub(crate) rows: usize,
}

/// Puts `parts` on the device.
pub(crate) fn upload(
    device: &Device,
    parts: &[HostTensor],
    residence: Residence,
) -> Result<forge_core::Weight<crate::Cuda>> {
    let _ = (device, parts, residence);
    Err(Error::unsupported("upload", "no layout for device weights"))
}
