//! [`Pass`]: an open recording. Ops launch kernels through it; what they touch stays alive.

use crate::Cuda;
use crate::device::Device;
use crate::ffi::{Event, LaunchShape};
use crate::memory::{Buffer, Scratch};
use forge_core::tensor::Tensor;
use forge_core::{Error, Result};
use std::collections::HashMap;

/// A kernel: file in `kernels/` and `extern "C"` name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) file: &'static str,
    pub(crate) entry: &'static str,
}

impl Kernel {
    pub(crate) const fn new(file: &'static str, entry: &'static str) -> Self {
        Self { file, entry }
    }
}

/// A launch: `Launch::new("add", KERNEL).grid(x, y, z).block(256)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    op: &'static str,
    kernel: Kernel,
    shape: LaunchShape,
}

impl Launch {
    /// One block of one thread, no dynamic shared memory.
    pub(crate) fn new(op: &'static str, kernel: Kernel) -> Self {
        let shape = LaunchShape { grid: [1; 3], block: [1; 3], shared_bytes: 0, overlap: false };
        Self { op, kernel, shape }
    }
    /// Blocks.
    pub(crate) fn grid(mut self, x: u32, y: u32, z: u32) -> Self {
        self.shape.grid = [x, y, z];
        self
    }
    /// Threads of a block.
    pub(crate) fn block(mut self, x: u32) -> Self {
        self.shape.block = [x, 1, 1];
        self
    }
    /// Threads of a block in two dimensions.
    pub(crate) fn block_2d(mut self, x: u32, y: u32) -> Self {
        self.shape.block = [x, y, 1];
        self
    }
    /// Dynamic shared memory in bytes; more than 48 KiB is asked for at the driver.
    pub(crate) fn shared(mut self, bytes: u32) -> Self {
        self.shape.shared_bytes = bytes;
        self
    }
    /// The kernel may start before the one in front of it has finished (sm_90 and newer, else no
    /// effect). It must call `wait_for_previous()` of common.cuh, in every thread, before it reads
    /// or writes anything that an earlier kernel touches; only weights and its parameters are
    /// free.
    pub(crate) fn overlap(mut self) -> Self {
        self.shape.overlap = true;
        self
    }
}

/// A kernel argument. Its size is compared with the compiled signature.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    /// Address of the first element of a view.
    Tensor(&'a Tensor<Cuda>),
    /// Address of a byte of a buffer.
    Bytes(&'a Buffer, usize),
    /// No buffer: a null pointer.
    Null,
    U32(u32),
    I32(i32),
    F32(f32),
    U64(u64),
}

impl<'a> From<&'a Tensor<Cuda>> for Arg<'a> {
    fn from(tensor: &'a Tensor<Cuda>) -> Self {
        Self::Tensor(tensor)
    }
}
impl<'a> From<&'a Scratch> for Arg<'a> {
    fn from(scratch: &'a Scratch) -> Self {
        Self::Bytes(&scratch.buffer, scratch.offset)
    }
}
impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self::Bytes(buffer, 0)
    }
}
impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}
impl From<i32> for Arg<'_> {
    fn from(value: i32) -> Self {
        Self::I32(value)
    }
}
impl From<f32> for Arg<'_> {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}
impl From<u64> for Arg<'_> {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl Arg<'_> {
    /// Size, the value widened to eight bytes, and the buffer to keep alive.
    fn resolve(&self) -> (usize, u64, Option<&Buffer>) {
        match *self {
            Self::Tensor(tensor) => {
                let offset = (tensor.offset * tensor.dtype.bytes()) as u64;
                (8, tensor.buffer.address() + offset, Some(&tensor.buffer))
            }
            Self::Bytes(buffer, offset) => (8, buffer.address() + offset as u64, Some(buffer)),
            Self::Null => (8, 0, None),
            Self::U32(value) => (4, u64::from(value), None),
            Self::I32(value) => (4, u64::from(value as u32), None),
            Self::F32(value) => (4, u64::from(value.to_bits()), None),
            Self::U64(value) => (8, value, None),
        }
    }
}

/// `value` as the 32-bit argument of a kernel.
///
/// # Errors
/// [`Error::Unsupported`] naming op and argument if it is 2^31 or more.
pub(crate) fn index32(op: &'static str, argument: &'static str, value: usize) -> Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|value| *value <= i32::MAX as u32)
        .ok_or_else(|| Error::unsupported(op, format!("{argument} of {value} is past 2^31 - 1")))
}

/// An open recording.
pub struct Pass<'b> {
    pub(crate) device: &'b Device,
    held: HashMap<u64, Buffer>,
    launches: usize,
    marks: Vec<Event>,
}

impl<'b> Pass<'b> {
    pub(crate) fn new(device: &'b Device) -> Self {
        let mut arenas = device.arenas();
        arenas.op.reset();
        Self { device, held: HashMap::new(), launches: 0, marks: Vec::new() }
    }
    /// Starts an op: workspace of the op before is free again.
    pub(crate) fn begin(&mut self) {
        self.device.arenas().op.reset();
    }
    /// Workspace until the next op begins; 256-byte aligned, content undefined.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn scratch(&mut self, bytes: usize) -> Result<Scratch> {
        let scratch = self.device.arenas().op.take(&self.device.context, bytes)?;
        self.hold(&scratch.buffer);
        Ok(scratch)
    }
    /// Keeps `buffer` alive as long as the program.
    pub(crate) fn hold(&mut self, buffer: &Buffer) {
        self.held.entry(buffer.address()).or_insert_with(|| buffer.clone());
    }
    /// Records a launch. An empty grid records nothing.
    ///
    /// # Errors
    /// [`Error::Device`] naming the op: unknown kernel, arguments that differ from its compiled
    /// signature, or a geometry that the driver refuses.
    pub(crate) fn launch(&mut self, launch: Launch, args: &[Arg<'_>]) -> Result<()> {
        let Launch { op, kernel, mut shape } = launch;
        if shape.grid.contains(&0) {
            return Ok(());
        }
        let loaded = self.device.modules.kernel(op, kernel)?;
        let mut values = Vec::with_capacity(args.len());
        let mut sizes = Vec::with_capacity(args.len());
        for arg in args {
            let (size, value, buffer) = arg.resolve();
            sizes.push(size);
            values.push(value);
            if let Some(buffer) = buffer {
                self.hold(buffer);
            }
        }
        if loaded.parameters.as_ref().is_some_and(|expected| *expected != sizes) {
            let reason = format!(
                "kernel {} takes parameters of {:?} bytes, got {sizes:?}",
                kernel.entry, loaded.parameters
            );
            return Err(Error::device(op, reason));
        }
        if shape.shared_bytes > self.max_shared_bytes() {
            let (asked, most) = (shape.shared_bytes, self.max_shared_bytes());
            let reason = format!("{asked} bytes of shared memory, this device has {most}");
            return Err(Error::unsupported(op, reason));
        }
        loaded.allow_shared(op, shape.shared_bytes)?;
        shape.overlap &= self.device.overlap;
        self.device.stream.launch(op, &loaded.function, &shape, &values)?;
        self.launches += 1;
        Ok(())
    }
    /// Blocks of this geometry that the whole device holds at a time.
    ///
    /// # Errors
    /// [`Error::Device`] for an unknown kernel.
    pub(crate) fn resident_blocks(&self, launch: &Launch) -> Result<u32> {
        let shape = launch.shape;
        let loaded = self.device.modules.kernel(launch.op, launch.kernel)?;
        loaded.allow_shared(launch.op, shape.shared_bytes)?;
        let threads = shape.block.iter().product();
        Ok(loaded.blocks_per_sm(launch.op, threads, shape.shared_bytes)? * self.device.sms)
    }
    /// Streaming multiprocessors of the device.
    pub(crate) fn sms(&self) -> u32 {
        self.device.sms
    }
    /// `10 * major + minor` of the compute capability.
    pub(crate) fn capability(&self) -> u32 {
        self.device.capability
    }
    /// Most dynamic shared memory of a block, in bytes.
    pub(crate) fn max_shared_bytes(&self) -> u32 {
        self.device.max_shared_bytes
    }
    /// Records a timer at this place of the graph.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn mark(&mut self) -> Result<()> {
        let event = Event::timed(&self.device.context)?;
        event.record_in_graph("mark", &self.device.stream)?;
        self.marks.push(event);
        Ok(())
    }
    /// The buffers touched, the number of launches, and the timers.
    pub(crate) fn finish(self) -> (Vec<Buffer>, usize, Vec<Event>) {
        (self.held.into_values().collect(), self.launches, self.marks)
    }
}
