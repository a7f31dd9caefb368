//! forge-wgpu: the portable backend over WebGPU (Vulkan, Metal, DX12), with the shaders of
//! `shaders/`.

#![forbid(unsafe_code)]

mod device;
mod memory;
mod ops;
mod pass;
mod pipeline;
mod self_test;
mod weights;

pub use device::{AdapterDescription, WgpuOptions, adapters};
pub use memory::Buffer;
pub use pass::{Program, WgpuPass};
pub use weights::Storage;

use device::Device;
use forge_core::backend::{Backend, DeviceInfo, Residence, Weight};
use forge_core::error::{Error, Result};
use forge_core::tensor::{DType, Shape, Tensor, shape_error};
use forge_core::weights::host::HostTensor;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Row counts that programs are recorded for.
const ROW_BUCKETS: [usize; 13] = [1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024];

/// An opened adapter.
pub struct WgpuBackend {
    device: Device,
    info: DeviceInfo,
    pipelines: pipeline::Pipelines,
    staging: memory::Staging,
    codebooks: OnceLock<wgpu::Buffer>,
    /// Memory that an op needs only while it runs. Dispatches run in order, so all share one.
    scratch: Mutex<Option<wgpu::Buffer>>,
    /// Ops are compared with the reference before they are used.
    self_test: bool,
    tile_rule: Mutex<ops::TileRule>,
    compared: self_test::Compared,
}

impl WgpuBackend {
    /// Opens the adapter that `options` ask for.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an adapter or on too low limits, [`Error::Invalid`] on an
    /// unknown adapter name, [`Error::Device`] if it does not open, or naming the op that differs
    /// from the CPU reference on it.
    pub fn open(options: &WgpuOptions) -> Result<Self> {
        let device = Device::open(options)?;
        // Activations of a pass must fit one binding: 1024 rows of the widest models take 150 MB.
        let max_rows = if device.binding_bytes() >= 1 << 30 { 1024 } else { 256 };
        let info = DeviceInfo {
            backend: "wgpu",
            name: device.name.clone(),
            row_buckets: ROW_BUCKETS.into_iter().filter(|rows| *rows <= max_rows).collect(),
            max_rows,
            ..DeviceInfo::default()
        };
        let backend = Self {
            device,
            info,
            pipelines: pipeline::Pipelines::default(),
            staging: memory::Staging::default(),
            codebooks: OnceLock::new(),
            scratch: Mutex::new(None),
            tile_rule: Mutex::default(),
            self_test: !options.skip_self_test,
            compared: self_test::Compared::default(),
        };
        if backend.self_test {
            self_test::base_ops(&backend)?;
        }
        Ok(backend)
    }

    /// True if the adapter runs on the CPU.
    pub fn is_software(&self) -> bool {
        self.device.software
    }

    /// How `linear` chooses its tile.
    pub(crate) fn tile_rule(&self) -> ops::TileRule {
        *self.tile_rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes [`Self::tile_rule`]; returns the one before.
    pub(crate) fn set_tile_rule(&self, rule: ops::TileRule) -> ops::TileRule {
        let mut slot = self.tile_rule.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut slot, rule)
    }

    /// At least `bytes` of memory for use inside one op.
    pub(crate) fn scratch(&self, op: &'static str, bytes: usize) -> Result<wgpu::Buffer> {
        let mut slot = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = &*slot
            && buffer.size() >= bytes as u64
        {
            return Ok(buffer.clone());
        }
        if bytes as u64 > self.device.binding_bytes() {
            return Err(Error::unsupported(
                format!("{op} with {bytes} bytes of scratch memory"),
                "more than one binding; use fewer rows",
            ));
        }
        let buffer = memory::create(&self.device, "scratch memory", bytes as u64)?;
        *slot = Some(buffer.clone());
        Ok(buffer)
    }

    /// Byte range of a contiguous tensor that starts at its first byte and has `len` bytes.
    fn byte_offset(&self, op: &'static str, tensor: &Tensor<Self>, len: usize) -> Result<u64> {
        let bytes = tensor.shape.len() * tensor.dtype.bytes();
        if len > bytes || !tensor.is_contiguous() {
            return Err(shape_error(
                op,
                "tensor",
                format!("contiguous, at least {len} bytes"),
                format!("{tensor:?}"),
            ));
        }
        Ok((tensor.offset * tensor.dtype.bytes()) as u64)
    }
}

impl Backend for WgpuBackend {
    type Buffer = Buffer;
    type Storage = Storage;
    type Pass<'b> = WgpuPass<'b>;
    type Program = Program;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn zeros(&self, shape: Shape, dtype: DType) -> Result<Tensor<Self>> {
        let row_bytes = shape.row_len() * dtype.bytes();
        let what = format!("tensor {dtype:?}{shape}");
        let buffer = memory::allocate(&self.device, &what, shape.rows(), row_bytes)?;
        Ok(Tensor::contiguous(buffer, dtype, shape))
    }

    /// Lookup tables lie in device memory too: WebGPU has no host memory that a shader can read.
    fn upload(&self, parts: &[HostTensor], _residence: Residence) -> Result<Weight<Self>> {
        self.upload_parts(parts)
    }

    fn write(&self, target: &Tensor<Self>, source: &[u8]) -> Result<()> {
        let offset = self.byte_offset("write", target, source.len())?;
        if !offset.is_multiple_of(4) || !source.len().is_multiple_of(4) {
            return Err(shape_error(
                "write",
                "source",
                "whole 32-bit words",
                format!("{} bytes at byte {offset}", source.len()),
            ));
        }
        memory::write(&self.device, &target.buffer, offset, source)
    }

    fn record(
        &self,
        body: impl FnOnce(&mut Self::Pass<'_>) -> Result<()>,
    ) -> Result<Self::Program> {
        let mut pass = WgpuPass::new(self);
        body(&mut pass)?;
        pass.finish()
    }

    fn submit(&self, program: &Self::Program) -> Result<()> {
        program.submit(self)
    }

    fn read(&self, source: &Tensor<Self>, target: &mut [u8]) -> Result<()> {
        let offset = self.byte_offset("read", source, target.len())?;
        self.staging.read(&self.device, &source.buffer, offset, target)
    }
}
