//! The stream: copies, launches, capture; and events on it.

use super::{Context, Function, Graph, Memory};
use cudarc::driver::sys::{
    CUevent, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
    CUstream, CUstreamCaptureMode,
};
use forge_core::{Error, Result};
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Parameters of one kernel at most.
const MAX_ARGS: usize = 48;

/// The one stream of a backend.
pub(crate) struct Stream {
    pub(crate) context: Arc<Context>,
    pub(super) stream: CUstream,
}

// SAFETY: see `Context`.
unsafe impl Send for Stream {}
// SAFETY: see `Context`.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream that does not wait for the default one.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        const NON_BLOCKING: c_uint = 1;
        context.enter("open")?;
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (context.driver.cuStreamCreate)(&mut stream, NON_BLOCKING) };
        context.check("open", code)?;
        Ok(Self { context: context.clone(), stream })
    }
    /// Sets `bytes` bytes of `target` to zero.
    pub(crate) fn zero(
        &self,
        stage: &str,
        target: &Memory,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        target.fits(stage, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.enter(stage)?;
        let address = target.address + offset as u64;
        // SAFETY: the range lies in `target`.
        let code = unsafe { (self.context.driver.cuMemsetD8Async)(address, 0, bytes, self.stream) };
        self.context.check(stage, code)
    }
    /// Copies `bytes` between two memories, device or pinned; unified addressing finds the
    /// direction.
    pub(crate) fn copy(
        &self,
        stage: &str,
        from: (&Memory, usize),
        to: (&Memory, usize),
        bytes: usize,
    ) -> Result<()> {
        from.0.fits(stage, from.1, bytes)?;
        to.0.fits(stage, to.1, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.enter(stage)?;
        let (source, target) = (from.0.address + from.1 as u64, to.0.address + to.1 as u64);
        let driver = &self.context.driver;
        // SAFETY: both ranges lie in their memories. Host pointers are passed as such, so that the
        // driver uses its copy engine.
        let code = unsafe {
            match (from.0.host, to.0.host) {
                (Some(host), _) => (driver.cuMemcpyHtoDAsync_v2)(
                    target,
                    host.cast::<u8>().add(from.1).cast(),
                    bytes,
                    self.stream,
                ),
                (None, Some(host)) => (driver.cuMemcpyDtoHAsync_v2)(
                    host.cast::<u8>().add(to.1).cast(),
                    source,
                    bytes,
                    self.stream,
                ),
                (None, None) => (driver.cuMemcpyDtoDAsync_v2)(target, source, bytes, self.stream),
            }
        };
        self.context.check(stage, code)
    }
    /// Starts recording. Relaxed mode: the arena may allocate while the recording is open.
    pub(crate) fn capture(&self) -> Result<Capture<'_>> {
        self.context.enter("record")?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a live handle.
        let code = unsafe { (self.context.driver.cuStreamBeginCapture_v2)(self.stream, mode) };
        self.context.check("record", code)?;
        Ok(Capture { stream: self, open: true })
    }
    /// Launches a kernel; during a capture, records it. `values` are the parameters widened to
    /// eight bytes; the caller has compared their number and sizes with the kernel's signature.
    pub(crate) fn launch(
        &self,
        stage: &str,
        function: &Function,
        shape: &LaunchShape,
        values: &[u64],
    ) -> Result<()> {
        if values.len() > MAX_ARGS {
            return Err(Error::device(stage, format!("{} kernel arguments", values.len())));
        }
        // All slots point at real memory, so a kernel with more parameters than given reads zeros.
        let mut slots = [0u64; MAX_ARGS];
        slots[..values.len()].copy_from_slice(values);
        let mut pointers = slots.each_mut().map(|slot| std::ptr::from_mut(slot).cast::<c_void>());
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { pad: [0; 64] },
        };
        attribute.value.programmaticStreamSerializationAllowed = 1;
        let config = CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared_bytes,
            hStream: self.stream,
            attrs: &mut attribute,
            numAttrs: u32::from(shape.overlap),
        };
        // SAFETY: the function belongs to this context; each parameter slot is eight readable
        // bytes.
        let code = unsafe {
            (self.context.driver.cuLaunchKernelEx)(
                &config,
                function.function,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        };
        self.context.check(stage, code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.context.enter("close");
        // SAFETY: created once, destroyed once.
        unsafe { (self.context.driver.cuStreamDestroy_v2)(self.stream) };
    }
}

/// An open recording; the stream leaves it on every path.
pub(crate) struct Capture<'a> {
    stream: &'a Stream,
    open: bool,
}

impl Capture<'_> {
    /// Ends the recording.
    pub(crate) fn finish(mut self) -> Result<Graph> {
        self.end()
    }
    fn end(&mut self) -> Result<Graph> {
        self.open = false;
        let context = &self.stream.context;
        let mut graph = null_mut();
        // SAFETY: writes one handle, null if the recording was invalidated.
        let code = unsafe { (context.driver.cuStreamEndCapture)(self.stream.stream, &mut graph) };
        let graph = Graph { context: context.clone(), graph };
        context.check("record", code)?;
        Ok(graph)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.end();
        }
    }
}

/// Geometry of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) overlap: bool,
}

/// A point in the stream; waiting for it blocks without spinning.
pub(crate) struct Event {
    context: Arc<Context>,
    event: CUevent,
}

// SAFETY: see `Context`.
unsafe impl Send for Event {}
// SAFETY: see `Context`.
unsafe impl Sync for Event {}

impl Event {
    /// An event that counts as passed until it is recorded.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        const BLOCKING_NO_TIMING: c_uint = 1 | 2;
        Self::with_flags(context, BLOCKING_NO_TIMING)
    }
    /// An event that also notes the time.
    pub(crate) fn timed(context: &Arc<Context>) -> Result<Self> {
        const BLOCKING: c_uint = 1;
        Self::with_flags(context, BLOCKING)
    }
    fn with_flags(context: &Arc<Context>, flags: c_uint) -> Result<Self> {
        context.enter("open")?;
        let mut event = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (context.driver.cuEventCreate)(&mut event, flags) };
        context.check("open", code)?;
        Ok(Self { context: context.clone(), event })
    }
    /// Records the event anew at each replay of the graph that is being captured.
    pub(crate) fn record_in_graph(&self, stage: &str, stream: &Stream) -> Result<()> {
        const EXTERNAL: c_uint = 1;
        self.context.enter(stage)?;
        let record = self.context.driver.cuEventRecordWithFlags;
        // SAFETY: two live handles of one context.
        let code = unsafe { record(self.event, stream.stream, EXTERNAL) };
        self.context.check(stage, code)
    }
    /// Seconds from `earlier` to this event; both must have passed.
    pub(crate) fn seconds_since(&self, earlier: &Self, stage: &str) -> Result<f64> {
        self.context.enter(stage)?;
        let mut milliseconds = 0f32;
        let elapsed = self.context.driver.cuEventElapsedTime;
        // SAFETY: two live timed events; writes one value.
        let code = unsafe { elapsed(&mut milliseconds, earlier.event, self.event) };
        self.context.check(stage, code)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
    /// Marks the end of what is on `stream` now.
    pub(crate) fn record(&self, stage: &str, stream: &Stream) -> Result<()> {
        self.context.enter(stage)?;
        // SAFETY: two live handles of one context.
        let code = unsafe { (self.context.driver.cuEventRecord)(self.event, stream.stream) };
        self.context.check(stage, code)
    }
    /// Waits until the device has passed the mark.
    pub(crate) fn wait(&self, stage: &str) -> Result<()> {
        self.context.enter(stage)?;
        // SAFETY: a live handle.
        let code = unsafe { (self.context.driver.cuEventSynchronize)(self.event) };
        self.context.check(stage, code)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.enter("close");
        // SAFETY: created once, destroyed once.
        unsafe { (self.context.driver.cuEventDestroy_v2)(self.event) };
    }
}
