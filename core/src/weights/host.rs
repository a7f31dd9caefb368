//! A tensor as it lies in a checkpoint: storage type, shape and bytes, usually inside a mapped file.

use super::quant::StorageType;
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A cheap handle on immutable bytes: a range of a mapped file or of an owned vector.
#[derive(Clone)]
pub struct HostBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl HostBytes {
    /// All bytes of `owner`.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let range = 0..(*owner).as_ref().len();
        Self { owner, range }
    }
    /// A range of these bytes, or `None` if it leaves them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end)?;
        (start <= end && end <= self.range.end)
            .then(|| Self { owner: self.owner.clone(), range: start..end })
    }
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }
}
impl From<&'static [u8]> for HostBytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self::new(Arc::new(bytes))
    }
}
impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// A tensor of a checkpoint. Row-major, slowest dimension first; the last dimension is a whole
/// number of blocks of its storage type.
#[derive(Clone, Debug)]
pub struct HostTensor {
    /// Name for messages: as the file spells it.
    pub name: String,
    /// Storage type.
    pub storage: StorageType,
    /// One to four dimensions.
    pub shape: Vec<usize>,
    /// Exactly the bytes that shape and type ask for.
    pub data: HostBytes,
}

impl HostTensor {
    /// Checks shape against bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the tensor if rank, block size or byte count do not fit.
    pub fn new(
        name: impl Into<String>,
        storage: StorageType,
        shape: Vec<usize>,
        data: HostBytes,
    ) -> Result<Self> {
        let name = name.into();
        let needed = storage.tensor_bytes(&shape).ok_or_else(|| {
            Error::invalid(&*name, format!("shape {shape:?} does not fit type {storage}"))
        })?;
        if needed != data.len() {
            return Err(Error::invalid(
                name,
                format!("{storage}{shape:?} takes {needed} bytes, found {}", data.len()),
            ));
        }
        Ok(Self { name, storage, shape, data })
    }
    /// An owned f32 tensor.
    ///
    /// # Errors
    /// As [`HostTensor::new`].
    pub fn from_f32(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> Result<Self> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(name, StorageType::F32, shape, bytes.into())
    }
    /// Values of the last dimension.
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(0)
    }
    /// Product of all dimensions but the last.
    pub fn total_rows(&self) -> usize {
        self.shape[..self.shape.len().saturating_sub(1)].iter().product()
    }
    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.storage.row_bytes(self.columns()).unwrap_or(0)
    }
    /// All values, dequantised.
    ///
    /// # Errors
    /// Those of [`StorageType::dequantize`].
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.shape.iter().product()];
        self.storage.dequantize(self.data.as_slice(), &mut out)?;
        Ok(out)
    }
}
