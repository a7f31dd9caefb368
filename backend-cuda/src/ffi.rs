//! Driver calls behind safe functions; the only place with raw pointers.
//!
//! The driver is opened with `dlopen`, so the crate builds and starts where no CUDA exists. Types and
//! layouts are cudarc's bindings, but the functions return plain integers: a driver newer than
//! the bindings may answer with codes that their Rust enum does not have.

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchAttribute,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmodule, CUstream,
    CUstreamCaptureMode,
};
use forge_core::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

/// Oldest driver: CUDA 12.0, the first whose graph calls are used here.
const OLDEST_DRIVER: i32 = 12000;
/// First driver that records programmatic dependent launches into graphs.
const OVERLAP_DRIVER: i32 = 12030;
/// Parameters of one kernel at most.
const MAX_ARGS: usize = 48;

/// Device attributes that forge asks for, by their number in the driver API.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Attribute {
    Sms = 16,
    MemoryClockKhz = 36,
    MemoryBusBits = 37,
    L2Bytes = 38,
    Major = 75,
    Minor = 76,
    SharedBytesOptIn = 97,
}

macro_rules! driver_table {
    ($($name:ident($($arg:ty),*);)*) => {
        /// Entry points of the driver.
        #[allow(non_snake_case, reason = "names of the driver API")]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            /// Keeps the entry points mapped.
            _library: Library,
        }
        impl Driver {
            fn resolve(library: Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the signature is that of the driver API's header.
                        let entry = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) -> c_int>(symbol)
                        };
                        *entry.map_err(|_| {
                            format!("the driver lacks {}: install a newer one", stringify!($name))
                        })?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

driver_table! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuGetErrorString(c_int, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetAttribute(*mut c_int, c_int, CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDevicePrimaryCtxSetFlags_v2(CUdevice, c_uint);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemHostGetDevicePointer_v2(*mut CUdeviceptr, *mut c_void, c_uint);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
    cuStreamEndCapture(CUstream, *mut CUgraph);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventDestroy_v2(CUevent);
    cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64);
    cuGraphLaunch(CUgraphExec, CUstream);
    cuGraphUpload(CUgraphExec, CUstream);
    cuGraphExecDestroy(CUgraphExec);
    cuGraphDestroy(CUgraph);
    cuModuleLoadData(*mut CUmodule, *const c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuFuncGetAttribute(*mut c_int, c_int, CUfunction);
    cuFuncSetAttribute(CUfunction, c_int, c_int);
    cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
}

impl Driver {
    /// Opens and initialises the driver library; the error is one sentence.
    pub(crate) fn load() -> Result<Arc<Self>, String> {
        let names: &[&str] = if cfg!(windows) {
            &["nvcuda.dll"]
        } else {
            &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"]
        };
        let library = names
            .iter()
            // SAFETY: the driver's library runs no code at load that could break ours.
            .find_map(|name| unsafe { Library::new(*name) }.ok())
            .ok_or_else(|| format!("no CUDA driver found ({} is absent)", names[0]))?;
        let driver = Self::resolve(library)?;
        // SAFETY: no arguments.
        let code = unsafe { (driver.cuInit)(0) };
        if code != 0 {
            return Err(format!("the CUDA driver does not start: {}", driver.text(code)));
        }
        let version = driver.version();
        if version < OLDEST_DRIVER {
            return Err(format!(
                "the CUDA driver supports {}.{}, 12.0 or newer is needed",
                version / 1000,
                version % 1000 / 10
            ));
        }
        Ok(Arc::new(driver))
    }
    /// CUDA version of the driver: `1000 * major + 10 * minor`.
    pub(crate) fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: writes one integer.
        unsafe { (self.cuDriverGetVersion)(&mut version) };
        version
    }
    /// Number of devices.
    pub(crate) fn device_count(&self) -> usize {
        let mut count = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.cuDeviceGetCount)(&mut count) };
        if code == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
    }
    /// Handle of device `index`.
    pub(crate) fn device(&self, index: usize) -> Result<CUdevice> {
        let count = self.device_count();
        let ordinal = c_int::try_from(index)
            .ok()
            .filter(|_| index < count)
            .ok_or_else(|| Error::invalid("device", format!("{index} of {count} CUDA devices")))?;
        let mut device = 0;
        // SAFETY: writes one handle.
        let code = unsafe { (self.cuDeviceGet)(&mut device, ordinal) };
        if code == 0 { Ok(device) } else { Err(Error::device("open", self.text(code))) }
    }
    /// Name of a device.
    pub(crate) fn name(&self, device: CUdevice) -> String {
        let mut name = [0 as c_char; 256];
        // SAFETY: the driver writes at most 256 bytes with a terminating zero.
        let code = unsafe { (self.cuDeviceGetName)(name.as_mut_ptr(), 256, device) };
        if code != 0 {
            return String::new();
        }
        // SAFETY: initialised with zeros, so a terminator exists.
        unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
    }
    /// An attribute of a device; 0 if the driver does not know it.
    pub(crate) fn attribute(&self, device: CUdevice, attribute: Attribute) -> i32 {
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { (self.cuDeviceGetAttribute)(&mut value, attribute as c_int, device) };
        if code == 0 { value } else { 0 }
    }
    /// Bytes of memory of a device.
    pub(crate) fn total_bytes(&self, device: CUdevice) -> u64 {
        let mut bytes = 0;
        // SAFETY: writes one size.
        let code = unsafe { (self.cuDeviceTotalMem_v2)(&mut bytes, device) };
        if code == 0 { bytes as u64 } else { 0 }
    }
    fn text(&self, code: c_int) -> String {
        let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
        // SAFETY: each call sets its pointer to a static string or to null.
        unsafe {
            (self.cuGetErrorName)(code, &mut name);
            (self.cuGetErrorString)(code, &mut text);
        }
        let read = |pointer: *const c_char| {
            if pointer.is_null() {
                return String::from("unknown");
            }
            // SAFETY: not null, and a static string of the driver.
            unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
        };
        format!("{} ({code}): {}", read(name), read(text))
    }
}

/// Errors after which the context is lost, so that every later call would fail without a cause.
fn is_sticky(code: c_int) -> bool {
    matches!(code, 4 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999)
}

/// The primary context of one device, and the first fault that made it unusable.
pub(crate) struct Context {
    pub(crate) driver: Arc<Driver>,
    pub(crate) device: CUdevice,
    context: CUcontext,
    fault: OnceLock<String>,
}

// SAFETY: the driver API may be called from any thread; every call first makes the context current
// on its thread, and the handle itself never changes.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context; waiting threads block instead of spinning.
    pub(crate) fn open(driver: Arc<Driver>, device: CUdevice) -> Result<Arc<Self>> {
        const SCHED_BLOCKING_SYNC: c_uint = 4;
        let mut context = null_mut();
        // SAFETY: `device` is a handle from `Driver::device`. The flags fail on a context that
        // another library opened first, which is harmless.
        let code = unsafe {
            (driver.cuDevicePrimaryCtxSetFlags_v2)(device, SCHED_BLOCKING_SYNC);
            (driver.cuDevicePrimaryCtxRetain)(&mut context, device)
        };
        if code != 0 {
            return Err(Error::device("open", driver.text(code)));
        }
        let context = Arc::new(Self { driver, device, context, fault: OnceLock::new() });
        context.enter("open")?;
        Ok(context)
    }
    /// Makes the context current on this thread; fails with the first fault if there was one.
    pub(crate) fn enter(&self, stage: &str) -> Result<()> {
        if let Some(first) = self.fault.get() {
            return Err(Error::device(stage, format!("the device failed earlier: {first}")));
        }
        // SAFETY: the handle is retained for the life of `self`.
        let code = unsafe { (self.driver.cuCtxSetCurrent)(self.context) };
        self.check(stage, code)
    }
    /// The first fault, if the device is lost.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
    /// Turns a result code into an error that names `stage`.
    fn check(&self, stage: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let text = self.driver.text(code);
        if is_sticky(code) {
            self.fault.get_or_init(|| format!("{stage}: {text}"));
        }
        Err(Error::device(stage, text))
    }
    /// Free and total bytes of the device.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        self.enter("memory")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let code = unsafe { (self.driver.cuMemGetInfo_v2)(&mut free, &mut total) };
        self.check("memory", code)?;
        Ok((free as u64, total as u64))
    }
    /// An attribute of the device.
    pub(crate) fn attribute(&self, attribute: Attribute) -> i32 {
        self.driver.attribute(self.device, attribute)
    }
    /// True if consecutive kernels of a graph may overlap their prologues.
    pub(crate) fn can_overlap(&self) -> bool {
        self.attribute(Attribute::Major) >= 9 && self.driver.version() >= OVERLAP_DRIVER
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`; everything made in it holds an `Arc` and is gone.
        unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// Device memory, or host memory that the device reads in place.
pub(crate) struct Memory {
    context: Arc<Context>,
    address: CUdeviceptr,
    bytes: usize,
    /// Set if the bytes lie in pinned host memory.
    host: Option<*mut c_void>,
}

// SAFETY: the address is only handed to the driver; `host` is freed once, in `drop`.
unsafe impl Send for Memory {}
// SAFETY: as above; the bytes are reached through stream-ordered copies.
unsafe impl Sync for Memory {}

impl Memory {
    /// `bytes` of device memory, not initialised; at least one byte is allocated.
    pub(crate) fn device(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        context.enter("allocate")?;
        let mut address = 0;
        // SAFETY: writes one address.
        let code = unsafe { (context.driver.cuMemAlloc_v2)(&mut address, bytes.max(1)) };
        if code == 2 {
            return Err(Error::OutOfMemory {
                what: "a device buffer".into(),
                needed: bytes as u64,
                available: context.memory().map_or(0, |(free, _)| free),
                advice: "use a smaller model, context or quantisation".into(),
            });
        }
        context.check("allocate", code)?;
        Ok(Self { context: context.clone(), address, bytes, host: None })
    }
    /// `bytes` of pinned host memory that the device can read and write; zeroed.
    pub(crate) fn pinned(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        const DEVICE_MAP: c_uint = 2;
        context.enter("allocate pinned")?;
        let mut host = null_mut();
        // SAFETY: writes one pointer.
        let code = unsafe { (context.driver.cuMemHostAlloc)(&mut host, bytes.max(1), DEVICE_MAP) };
        context.check("allocate pinned", code)?;
        // From here on `drop` frees the memory.
        let mut memory = Self { context: context.clone(), address: 0, bytes, host: Some(host) };
        // SAFETY: the driver just returned `bytes` bytes at `host`.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: `host` is mapped pinned memory.
        let code =
            unsafe { (context.driver.cuMemHostGetDevicePointer_v2)(&mut memory.address, host, 0) };
        context.check("allocate pinned", code)?;
        Ok(memory)
    }
    /// Address for the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
    /// Size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    /// The bytes as the host sees them; `None` for device memory. The caller has made sure that the
    /// device neither reads nor writes them (fresh memory, or an event waited for).
    pub(crate) fn host_mut(&mut self) -> Option<&mut [u8]> {
        let host = self.host?;
        // SAFETY: `bytes` initialised bytes that live as long as `self`; `&mut self` is exclusive.
        Some(unsafe { std::slice::from_raw_parts_mut(host.cast::<u8>(), self.bytes) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = self.context.enter("free");
        // SAFETY: allocated by the matching call and freed once. Both wait for work in flight.
        unsafe {
            match self.host {
                Some(host) => (self.context.driver.cuMemFreeHost)(host),
                None => (self.context.driver.cuMemFree_v2)(self.address),
            };
        }
    }
}

/// The one stream of a backend.
pub(crate) struct Stream {
    pub(crate) context: Arc<Context>,
    stream: CUstream,
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
    /// Waits for everything on the stream.
    pub(crate) fn synchronize(&self, stage: &str) -> Result<()> {
        self.context.enter(stage)?;
        // SAFETY: a live handle.
        let code = unsafe { (self.context.driver.cuStreamSynchronize)(self.stream) };
        self.context.check(stage, code)
    }
    /// Sets `range` of `target` to zero.
    pub(crate) fn zero(
        &self,
        stage: &str,
        target: &Memory,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        fits(stage, target, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.enter(stage)?;
        let address = target.address + offset as u64;
        // SAFETY: the range lies in `target`.
        let code = unsafe { (self.context.driver.cuMemsetD8Async)(address, 0, bytes, self.stream) };
        self.context.check(stage, code)
    }
    /// Copies `bytes` between two memories, device or pinned; unified addressing finds the direction.
    pub(crate) fn copy(
        &self,
        stage: &str,
        from: (&Memory, usize),
        to: (&Memory, usize),
        bytes: usize,
    ) -> Result<()> {
        fits(stage, from.0, from.1, bytes)?;
        fits(stage, to.0, to.1, bytes)?;
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
    pub(crate) fn begin_capture(&self) -> Result<()> {
        self.context.enter("record")?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a live handle.
        let code = unsafe { (self.context.driver.cuStreamBeginCapture_v2)(self.stream, mode) };
        self.context.check("record", code)
    }
    /// Ends recording; must follow every successful `begin_capture`.
    pub(crate) fn end_capture(&self) -> Result<Graph> {
        let mut graph = null_mut();
        // SAFETY: writes one handle, null if the recording was invalidated.
        let code = unsafe { (self.context.driver.cuStreamEndCapture)(self.stream, &mut graph) };
        let graph = Graph { context: self.context.clone(), graph };
        self.context.check("record", code)?;
        Ok(graph)
    }
    /// Launches a kernel; during a capture, records it. `values` are the parameters widened to eight
    /// bytes; the caller has compared their number and sizes with the kernel's signature.
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
        // SAFETY: the function belongs to this context; each parameter slot is eight readable bytes.
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

/// Geometry of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) overlap: bool,
}

fn fits(stage: &str, memory: &Memory, offset: usize, bytes: usize) -> Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes) {
        return Ok(());
    }
    let reason = format!("{bytes} bytes at {offset} leave a buffer of {}", memory.bytes);
    Err(Error::device(stage, reason))
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
        context.enter("open")?;
        let mut event = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { (context.driver.cuEventCreate)(&mut event, BLOCKING_NO_TIMING) };
        context.check("open", code)?;
        Ok(Self { context: context.clone(), event })
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

/// A recorded graph.
pub(crate) struct Graph {
    context: Arc<Context>,
    graph: CUgraph,
}

impl Graph {
    /// Makes it executable and puts it on the device.
    pub(crate) fn instantiate(&self, stream: &Stream) -> Result<GraphExec> {
        self.context.enter("record")?;
        let mut exec = null_mut();
        // SAFETY: a live graph; writes one handle.
        let code =
            unsafe { (self.context.driver.cuGraphInstantiateWithFlags)(&mut exec, self.graph, 0) };
        self.context.check("record", code)?;
        let exec = GraphExec { context: self.context.clone(), exec };
        // SAFETY: both handles are live.
        let code = unsafe { (self.context.driver.cuGraphUpload)(exec.exec, stream.stream) };
        self.context.check("record", code)?;
        Ok(exec)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.graph.is_null() {
            let _ = self.context.enter("close");
            // SAFETY: ended once, destroyed once.
            unsafe { (self.context.driver.cuGraphDestroy)(self.graph) };
        }
    }
}

/// An executable graph.
pub(crate) struct GraphExec {
    context: Arc<Context>,
    exec: CUgraphExec,
}

// SAFETY: launches are serialised by the stream; see `Context`.
unsafe impl Send for GraphExec {}
// SAFETY: as above.
unsafe impl Sync for GraphExec {}

impl GraphExec {
    /// Starts it after everything on `stream`.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.enter("submit")?;
        // SAFETY: both handles are live; the buffers it touches are held by its `Program`.
        let code = unsafe { (self.context.driver.cuGraphLaunch)(self.exec, stream.stream) };
        self.context.check("submit", code)
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let _ = self.context.enter("close");
        // SAFETY: instantiated once, destroyed once; the driver waits for a launch in flight.
        unsafe { (self.context.driver.cuGraphExecDestroy)(self.exec) };
    }
}

/// Loaded machine code of one kernel file.
pub(crate) struct Module {
    context: Arc<Context>,
    module: CUmodule,
}

// SAFETY: see `Context`.
unsafe impl Send for Module {}
// SAFETY: see `Context`.
unsafe impl Sync for Module {}

/// A kernel of a [`Module`], which must outlive it.
#[derive(Debug)]
pub(crate) struct Function {
    function: CUfunction,
}

// SAFETY: a handle that is only handed to the driver.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Module {
    /// Loads a cubin.
    pub(crate) fn load(context: &Arc<Context>, file: &str, cubin: &[u8]) -> Result<Self> {
        context.enter(file)?;
        let mut module = null_mut();
        // SAFETY: the driver reads the ELF image, whose length is in its header; `elf::Image` has
        // checked that the sections lie inside the bytes.
        let code = unsafe { (context.driver.cuModuleLoadData)(&mut module, cubin.as_ptr().cast()) };
        context.check(file, code)?;
        Ok(Self { context: context.clone(), module })
    }
    /// The kernel `entry`, loaded onto the device now rather than at its first launch.
    pub(crate) fn function(&self, entry: &str) -> Result<Function> {
        let name = CString::new(entry).map_err(|_| Error::device(entry, "zero byte in a name"))?;
        self.context.enter(entry)?;
        let mut function = null_mut();
        // SAFETY: a live module and a terminated string; writes one handle.
        let code = unsafe {
            (self.context.driver.cuModuleGetFunction)(&mut function, self.module, name.as_ptr())
        };
        self.context.check(entry, code)?;
        let function = Function { function };
        // Asking for an attribute makes a lazily loading driver load the code.
        self.attribute(entry, &function, 4)?;
        Ok(function)
    }
    fn attribute(&self, entry: &str, function: &Function, attribute: c_int) -> Result<i32> {
        let mut value = 0;
        // SAFETY: a live function; writes one integer.
        let code = unsafe {
            (self.context.driver.cuFuncGetAttribute)(&mut value, attribute, function.function)
        };
        self.context.check(entry, code)?;
        Ok(value)
    }
    /// Allows launches with up to `bytes` of dynamic shared memory.
    pub(crate) fn allow_shared(&self, entry: &str, function: &Function, bytes: u32) -> Result<()> {
        const MAX_DYNAMIC_SHARED: c_int = 8;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.context.enter(entry)?;
        // SAFETY: a live function.
        let code = unsafe {
            (self.context.driver.cuFuncSetAttribute)(function.function, MAX_DYNAMIC_SHARED, bytes)
        };
        self.context.check(entry, code)
    }
    /// Blocks of this geometry that one SM holds at a time.
    pub(crate) fn blocks_per_sm(
        &self,
        entry: &str,
        function: &Function,
        threads: u32,
        shared: u32,
    ) -> Result<u32> {
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        self.context.enter(entry)?;
        let mut blocks = 0;
        // SAFETY: a live function; writes one integer.
        let code = unsafe {
            (self.context.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &mut blocks,
                function.function,
                threads,
                shared as usize,
            )
        };
        self.context.check(entry, code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.enter("close");
        // SAFETY: loaded once, unloaded once.
        unsafe { (self.context.driver.cuModuleUnload)(self.module) };
    }
}
