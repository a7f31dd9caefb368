//! forge-cuda: the CUDA backend. Compute capability 8.0 and newer; builds and starts on machines
//! without CUDA, where [`Cuda::open`] says what is missing.

mod bandwidth;
pub mod compile;
mod device;
pub mod elf;
mod ffi;
mod lookup;
mod memory;
pub mod nvrtc;
mod ops;
mod pass;
mod probe;
#[cfg(test)]
mod product_tests;
mod repack;
pub mod sources;
mod weight;

use device::Device;
use ffi::{Driver, Event, GraphExec};
use forge_core::backend::Weight;
use forge_core::tensor::{DType, Shape, Tensor, shape_error};
use forge_core::weights::host::HostTensor;
use forge_core::{Backend, DeviceInfo, Error, Residence, Result};
use std::path::PathBuf;

pub use memory::Buffer;
pub use pass::Pass;
pub use probe::{Probe, ProbeDevice, probe};
pub use weight::CudaWeight;

/// How to open a device.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Index of the device, in the driver's order.
    pub device: usize,
    /// Folder for compiled kernels; `None` = [`compile::default_cache`].
    pub cache: Option<PathBuf>,
}

/// A CUDA device as a backend.
pub struct Cuda {
    device: Device,
}

/// A closed recording: one graph, and the buffers that it touches.
pub struct Program {
    // The graph goes before its memory.
    exec: GraphExec,
    _buffers: Vec<Buffer>,
    launches: usize,
    marks: Vec<Event>,
}

impl Program {
    /// Kernels and copies that one submit starts.
    pub fn launches(&self) -> usize {
        self.launches
    }
}

impl Cuda {
    /// Opens a device: driver, context, kernels. On an error nothing stays open.
    ///
    /// # Errors
    /// [`forge_core::Error::Unsupported`] without a usable driver or below compute capability 8.0,
    /// [`forge_core::Error::Device`] if the kernels cannot be compiled or loaded.
    pub fn open(options: &Options) -> Result<Self> {
        let unavailable = |reason: String| Error::unsupported("backend cuda", reason);
        let driver = Driver::load().map_err(unavailable)?;
        Ok(Self { device: Device::open(driver, options)? })
    }
    /// The error that made the device unusable, if there was one.
    pub fn fault(&self) -> Option<&str> {
        self.device.context.fault()
    }
}

/// Byte range of the first `bytes` of a contiguous view.
fn span(stage: &'static str, tensor: &Tensor<Cuda>, bytes: usize) -> Result<usize> {
    let held = tensor.shape.len() * tensor.dtype.bytes();
    if !tensor.is_contiguous() || bytes > held {
        let expected = format!("a contiguous view of at least {bytes} bytes");
        return Err(shape_error(stage, "tensor", expected, format!("{tensor:?}")));
    }
    Ok(tensor.offset * tensor.dtype.bytes())
}

impl Backend for Cuda {
    type Buffer = Buffer;
    type Storage = CudaWeight;
    type Pass<'b> = Pass<'b>;
    type Program = Program;

    fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    fn zeros(&self, shape: Shape, dtype: DType) -> Result<Tensor<Self>> {
        let bytes = shape.len() * dtype.bytes();
        let buffer = Buffer::device(&self.device.context, bytes)?;
        self.device.stream.zero("zeros", buffer.memory(), 0, bytes)?;
        Ok(Tensor::contiguous(buffer, dtype, shape))
    }

    fn upload(&self, parts: &[HostTensor], residence: Residence) -> Result<Weight<Self>> {
        weight::upload(&self.device, parts, residence)
    }

    fn write(&self, target: &Tensor<Self>, source: &[u8]) -> Result<()> {
        let offset = span("write", target, source.len())?;
        let mut staging = self.device.staging();
        let small = source.len() <= staging.inputs.section_bytes();
        let ring = if small { &mut staging.inputs } else { &mut staging.uploads };
        ring.write("write", &self.device.stream, source, target.buffer.memory(), offset)
    }

    fn record(&self, body: impl FnOnce(&mut Pass<'_>) -> Result<()>) -> Result<Program> {
        let mut pass = Pass::new(&self.device);
        let capture = self.device.stream.capture()?;
        // An error of the body comes before those of the capture, which it may have invalidated;
        // dropped, the capture ends as well.
        body(&mut pass)?;
        let exec = capture.finish()?.instantiate(&self.device.stream)?;
        let (buffers, launches, marks) = pass.finish();
        Ok(Program { exec, _buffers: buffers, launches, marks })
    }

    fn submit(&self, program: &Program) -> Result<()> {
        program.exec.launch(&self.device.stream)
    }

    fn measure_bandwidth(&self) -> Result<f64> {
        bandwidth::measure(self)
    }

    fn op_times(&self, program: &Program) -> Result<Vec<f64>> {
        self.submit(program)?;
        let Some(last) = program.marks.last() else { return Ok(Vec::new()) };
        last.wait("op_times")?;
        let pairs = program.marks.windows(2);
        pairs.map(|pair| pair[1].seconds_since(&pair[0], "op_times")).collect()
    }

    fn read(&self, source: &Tensor<Self>, target: &mut [u8]) -> Result<()> {
        let offset = span("read", source, target.len())?;
        let memory = source.buffer.memory();
        self.device.staging().outputs.read("read", &self.device.stream, memory, offset, target)
    }
}

#[cfg(test)]
mod tests;
