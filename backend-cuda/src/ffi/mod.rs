//! Driver calls behind safe functions; the only place with raw pointers.
//!
//! The driver is opened with `dlopen`, so the crate builds and starts where no CUDA exists. Types
//! and layouts are cudarc's bindings, but the functions return plain integers: a driver newer than
//! the bindings may answer with codes that their Rust enum does not have.

#[cfg(test)]
pub(crate) mod fake;
mod graph;
mod memory;
mod module;
mod stream;

pub(crate) use graph::{Graph, GraphExec};
pub(crate) use memory::Memory;
pub(crate) use module::{Function, Module};
pub(crate) use stream::{Event, LaunchShape, Stream};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchConfig,
    CUmodule, CUstream, CUstreamCaptureMode,
};
use forge_core::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

/// Oldest driver: CUDA 12.0, the first whose graph calls are used here.
const OLDEST_DRIVER: i32 = 12000;
/// First driver that records programmatic dependent launches into graphs.
const OVERLAP_DRIVER: i32 = 12030;

/// Device attributes that forge asks for, by their number in the driver API.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Attribute {
    Sms = 16,
    MemoryClockKhz = 36,
    MemoryBusBits = 37,
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
            /// Keeps the entry points mapped; none in tests.
            _library: Option<Library>,
        }
        impl Driver {
            /// A driver whose calls do nothing and succeed.
            #[cfg(test)]
            #[allow(non_snake_case, reason = "names of the driver API")]
            fn idle() -> Self {
                $(unsafe extern "C" fn $name($(_: $arg),*) -> c_int { 0 })*
                Self { $($name,)* _library: None }
            }
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
                    _library: Some(library),
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
    cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
    cuStreamEndCapture(CUstream, *mut CUgraph);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventRecord(CUevent, CUstream);
    cuEventRecordWithFlags(CUevent, CUstream, c_uint);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);
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
