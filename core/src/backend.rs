//! The boundary between the model and a device: memory, a recording, and its replay.

use crate::error::Result;
use crate::ops::Ops;
use crate::tensor::{DType, Shape, Tensor};
use crate::weights::host::HostTensor;

/// What a backend tells people, budgets and the scheduler about its device.
#[derive(Clone, Debug, Default)]
pub struct DeviceInfo {
    /// Backend: `cpu`, `cuda`, `wgpu`.
    pub backend: &'static str,
    /// Device name as its driver gives it.
    pub name: String,
    /// Memory of the device in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Memory free when the backend was opened; 0 if unknown.
    pub free_bytes: u64,
    /// Measured or listed read bandwidth in bytes per second; 0 if unknown.
    pub bandwidth: f64,
    /// Parallel units (SMs, cores).
    pub units: usize,
    /// Row counts that programs are recorded for, ascending; a pass is padded to the next one.
    /// Empty = every count is recorded as it is.
    pub row_buckets: Vec<usize>,
    /// Most rows of one prefill pass that pay on this device.
    pub max_rows: usize,
}

/// Where a weight is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// In device memory, laid out for `linear`.
    Device,
    /// Only looked up by row ([`Ops::embed`]): may stay in host memory that the device can read.
    Lookup,
}

/// A weight on a device: one or more matrices with the same number of columns, stacked by rows.
/// `linear` with it yields the outputs of all parts side by side.
pub struct Weight<B: Backend> {
    /// Backend's own storage.
    pub storage: B::Storage,
    /// Experts stacked in front (1 for a plain matrix).
    pub experts: usize,
    /// Output values: the sum over the parts.
    pub rows: usize,
    /// Input values.
    pub columns: usize,
    /// Bytes as stored in the checkpoint, of all experts.
    pub bytes: u64,
}

impl<B: Backend> Clone for Weight<B> {
    fn clone(&self) -> Self {
        Self { storage: self.storage.clone(), ..*self }
    }
}

/// Device memory, recordings and their execution. `record` runs nothing, `submit` waits for
/// nothing, `read` waits; `write`, `submit` and `read` take effect in the order called.
pub trait Backend: Sized + 'static {
    /// Shared handle of device memory; the last clone frees it.
    type Buffer: Clone;
    /// Shared handle of an uploaded weight.
    type Storage: Clone;
    /// An open recording.
    type Pass<'b>: Ops<Self>
    where
        Self: 'b;
    /// A closed recording; keeps alive every buffer it touches.
    type Program;

    /// The device.
    fn info(&self) -> &DeviceInfo;

    /// A zeroed contiguous tensor.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] or a device error.
    fn zeros(&self, shape: Shape, dtype: DType) -> Result<Tensor<Self>>;

    /// Puts `parts`, stacked by rows, on the device in its own layout. Shapes are `[rows, columns]`
    /// or, for experts, `[experts, rows, columns]` with equal `experts` and `columns`.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] for a storage type without a kernel, shape or device errors.
    fn upload(&self, parts: &[HostTensor], residence: Residence) -> Result<Weight<Self>>;

    /// Copies `source` over the first bytes of the contiguous `target`. The bytes are taken before
    /// the call returns; the copy takes effect in call order.
    ///
    /// # Errors
    /// Shape error if `source` is larger than `target` or `target` has gaps; device errors.
    fn write(&self, target: &Tensor<Self>, source: &[u8]) -> Result<()>;

    /// Records what `body` calls.
    ///
    /// # Errors
    /// What `body` returns, or a device error; the recording is closed either way.
    fn record(&self, body: impl FnOnce(&mut Self::Pass<'_>) -> Result<()>)
    -> Result<Self::Program>;

    /// Starts `program` after everything submitted before.
    ///
    /// # Errors
    /// Device errors (on the CPU also those of the ops).
    fn submit(&self, program: &Self::Program) -> Result<()>;

    /// Read bandwidth of device memory in bytes per second, measured where the backend can, else as
    /// [`DeviceInfo::bandwidth`] has it; 0 if unknown.
    ///
    /// # Errors
    /// Device errors.
    fn measure_bandwidth(&self) -> Result<f64> {
        Ok(self.info().bandwidth)
    }

    /// Runs `program` as [`Backend::submit`] does, waits, and returns the seconds between
    /// neighbouring marks ([`Ops::mark`]).
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] on a backend that cannot time its ops; device errors.
    fn op_times(&self, program: &Self::Program) -> Result<Vec<f64>> {
        let _ = program;
        let backend = self.info().backend;
        Err(crate::Error::unsupported("op times", format!("backend {backend} has no timers")))
    }

    /// Waits for everything submitted and copies the first bytes of the contiguous `source`.
    ///
    /// # Errors
    /// Shape error if `target` is larger than `source` or `source` has gaps; device errors,
    /// including those of earlier submits.
    fn read(&self, source: &Tensor<Self>, target: &mut [u8]) -> Result<()>;
}

/// A contiguous f32 tensor with these values.
///
/// # Errors
/// Those of [`Backend::zeros`] and [`Backend::write`].
pub fn upload_f32<B: Backend>(backend: &B, values: &[f32], shape: Shape) -> Result<Tensor<B>> {
    let tensor = backend.zeros(shape, DType::F32)?;
    backend.write(&tensor, bytemuck::cast_slice(values))?;
    Ok(tensor)
}

/// A contiguous i32 tensor with these values.
///
/// # Errors
/// Those of [`Backend::zeros`] and [`Backend::write`].
pub fn upload_i32<B: Backend>(backend: &B, values: &[i32], shape: Shape) -> Result<Tensor<B>> {
    let tensor = backend.zeros(shape, DType::I32)?;
    backend.write(&tensor, bytemuck::cast_slice(values))?;
    Ok(tensor)
}
