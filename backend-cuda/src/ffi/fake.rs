//! A driver in host memory for tests: copies are real, kernels do nothing, and every allocation is
//! counted. What tests set and see belongs to their thread.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one invariant: the wrappers of this crate pass live pointers"
)]

use super::{Attribute, Driver};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUfunction, CUgraph, CUgraphExec, CUlaunchConfig, CUmodule,
    CUstream, CUstreamCaptureMode,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;
use std::sync::Arc;

thread_local! {
    static MEMORY: RefCell<HashMap<u64, Box<[u64]>>> = RefCell::default();
    static CAPABILITY: Cell<c_int> = const { Cell::new(80) };
    static NEXT_LAUNCH: Cell<c_int> = const { Cell::new(0) };
    static NEXT_SUBMIT: Cell<c_int> = const { Cell::new(0) };
    static CAPTURING: Cell<bool> = const { Cell::new(false) };
    static GRIDS: RefCell<Vec<[c_uint; 3]>> = RefCell::default();
}

/// Allocations alive.
pub(crate) fn allocations() -> usize {
    MEMORY.with_borrow(HashMap::len)
}
/// Compute capability of the device, `10 * major + minor`.
pub(crate) fn set_capability(value: c_int) {
    CAPABILITY.set(value);
}
/// Result of the next kernel launch.
pub(crate) fn fail_launch(code: c_int) {
    NEXT_LAUNCH.set(code);
}
/// Result of the next graph launch.
pub(crate) fn fail_submit(code: c_int) {
    NEXT_SUBMIT.set(code);
}
/// True while a recording is open.
pub(crate) fn capturing() -> bool {
    CAPTURING.get()
}
/// Grids of the launches since the last call.
pub(crate) fn take_grids() -> Vec<[c_uint; 3]> {
    GRIDS.take()
}

fn allocate(bytes: usize) -> u64 {
    // Filled with a pattern, so that a missing initialisation shows.
    let mut block = vec![0xa5a5_a5a5_a5a5_a5a5u64; bytes.div_ceil(8)].into_boxed_slice();
    let address = block.as_mut_ptr() as u64;
    MEMORY.with_borrow_mut(|memory| memory.insert(address, block));
    address
}
fn release(address: u64) -> c_int {
    let known = MEMORY.with_borrow_mut(|memory| memory.remove(&address)).is_some();
    if known { 0 } else { 1 }
}

/// The driver.
pub(crate) fn driver() -> Arc<Driver> {
    let mut driver = Driver::idle();
    driver.cuDriverGetVersion = version;
    driver.cuDeviceGetCount = count;
    driver.cuDeviceGetAttribute = attribute;
    driver.cuDeviceGetName = name;
    driver.cuMemGetInfo_v2 = info;
    driver.cuDevicePrimaryCtxRetain = retain;
    driver.cuMemAlloc_v2 = alloc;
    driver.cuMemFree_v2 = free;
    driver.cuMemHostAlloc = host_alloc;
    driver.cuMemFreeHost = host_free;
    driver.cuMemHostGetDevicePointer_v2 = host_pointer;
    driver.cuMemcpyHtoDAsync_v2 = to_device;
    driver.cuMemcpyDtoHAsync_v2 = to_host;
    driver.cuMemcpyDtoDAsync_v2 = on_device;
    driver.cuMemsetD8Async = set;
    driver.cuStreamBeginCapture_v2 = begin;
    driver.cuStreamEndCapture = end;
    driver.cuGraphInstantiateWithFlags = instantiate;
    driver.cuGraphLaunch = submit;
    driver.cuModuleLoadData = load;
    driver.cuModuleGetFunction = function;
    driver.cuLaunchKernelEx = launch;
    Arc::new(driver)
}

unsafe extern "C" fn version(out: *mut c_int) -> c_int {
    unsafe { *out = 12080 };
    0
}
unsafe extern "C" fn count(out: *mut c_int) -> c_int {
    unsafe { *out = 1 };
    0
}
unsafe extern "C" fn attribute(out: *mut c_int, attribute: c_int, _: CUdevice) -> c_int {
    let capability = CAPABILITY.get();
    let value = match attribute {
        a if a == Attribute::Major as c_int => capability / 10,
        a if a == Attribute::Minor as c_int => capability % 10,
        a if a == Attribute::Sms as c_int => 108,
        a if a == Attribute::SharedBytesOptIn as c_int => 163 << 10,
        _ => 1,
    };
    unsafe { *out = value };
    0
}
unsafe extern "C" fn name(out: *mut c_char, _: c_int, _: CUdevice) -> c_int {
    unsafe { *out = b'F' as c_char };
    0
}
unsafe extern "C" fn info(free: *mut usize, total: *mut usize) -> c_int {
    unsafe { (*free, *total) = (1 << 30, 2 << 30) };
    0
}
unsafe extern "C" fn retain(out: *mut CUcontext, _: CUdevice) -> c_int {
    unsafe { *out = without_provenance_mut(8) };
    0
}
unsafe extern "C" fn alloc(out: *mut CUdeviceptr, bytes: usize) -> c_int {
    unsafe { *out = allocate(bytes) };
    0
}
unsafe extern "C" fn free(address: CUdeviceptr) -> c_int {
    release(address)
}
unsafe extern "C" fn host_alloc(out: *mut *mut c_void, bytes: usize, _: c_uint) -> c_int {
    unsafe { *out = allocate(bytes) as *mut c_void };
    0
}
unsafe extern "C" fn host_free(pointer: *mut c_void) -> c_int {
    release(pointer as u64)
}
unsafe extern "C" fn host_pointer(out: *mut CUdeviceptr, host: *mut c_void, _: c_uint) -> c_int {
    unsafe { *out = host as u64 };
    0
}
unsafe extern "C" fn to_device(to: u64, from: *const c_void, bytes: usize, _: CUstream) -> c_int {
    unsafe { (to as *mut u8).copy_from(from.cast(), bytes) };
    0
}
unsafe extern "C" fn to_host(to: *mut c_void, from: u64, bytes: usize, _: CUstream) -> c_int {
    unsafe { to.cast::<u8>().copy_from(from as *const u8, bytes) };
    0
}
unsafe extern "C" fn on_device(to: u64, from: u64, bytes: usize, _: CUstream) -> c_int {
    unsafe { (to as *mut u8).copy_from(from as *const u8, bytes) };
    0
}
unsafe extern "C" fn set(to: u64, value: u8, bytes: usize, _: CUstream) -> c_int {
    unsafe { (to as *mut u8).write_bytes(value, bytes) };
    0
}
unsafe extern "C" fn begin(_: CUstream, _: CUstreamCaptureMode) -> c_int {
    if CAPTURING.replace(true) { 900 } else { 0 }
}
unsafe extern "C" fn end(_: CUstream, out: *mut CUgraph) -> c_int {
    unsafe { *out = without_provenance_mut(8) };
    if CAPTURING.replace(false) { 0 } else { 901 }
}
unsafe extern "C" fn instantiate(out: *mut CUgraphExec, _: CUgraph, _: u64) -> c_int {
    unsafe { *out = without_provenance_mut(8) };
    0
}
unsafe extern "C" fn submit(_: CUgraphExec, _: CUstream) -> c_int {
    NEXT_SUBMIT.replace(0)
}
unsafe extern "C" fn load(out: *mut CUmodule, _: *const c_void) -> c_int {
    unsafe { *out = without_provenance_mut(8) };
    0
}
unsafe extern "C" fn function(out: *mut CUfunction, _: CUmodule, _: *const c_char) -> c_int {
    unsafe { *out = without_provenance_mut(8) };
    0
}
unsafe extern "C" fn launch(
    config: *const CUlaunchConfig,
    _: CUfunction,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    let config = unsafe { &*config };
    let threads = config.blockDimX * config.blockDimY * config.blockDimZ;
    if !CAPTURING.get() || threads == 0 || threads > 1024 || config.gridDimY > 65_535 {
        return 1;
    }
    GRIDS.with_borrow_mut(|grids| grids.push([config.gridDimX, config.gridDimY, config.gridDimZ]));
    NEXT_LAUNCH.replace(0)
}
