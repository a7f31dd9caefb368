//! Uploaded weights.

use crate::Cuda;
use crate::device::Device;
use crate::lookup::{self, LookupPart};
use forge_core::weights::host::HostTensor;
use forge_core::{Error, Residence, Result, Weight};
use std::sync::Arc;

/// An uploaded weight: its parts, stacked by rows.
#[derive(Clone, Debug)]
pub struct CudaWeight {
    lookup: Arc<Vec<LookupPart>>,
}

impl CudaWeight {
    /// Raw rows, if the weight was uploaded for [`Residence::Lookup`].
    pub(crate) fn lookup(&self) -> Option<&[LookupPart]> {
        Some(&self.lookup)
    }
}

/// Puts `parts` on the device.
pub(crate) fn upload(
    device: &Device,
    parts: &[HostTensor],
    residence: Residence,
) -> Result<Weight<Cuda>> {
    if residence == Residence::Device {
        return Err(Error::unsupported("upload", "no layout for products"));
    }
    let lookup = Arc::new(lookup::upload(device, parts)?);
    Ok(Weight {
        storage: CudaWeight { lookup },
        experts: 1,
        rows: parts.iter().map(HostTensor::total_rows).sum(),
        columns: parts.first().map_or(0, HostTensor::columns),
        bytes: parts.iter().map(|part| part.data.len() as u64).sum(),
    })
}
