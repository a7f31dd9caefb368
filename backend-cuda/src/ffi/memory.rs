//! Device memory and pinned host memory.

use super::Context;
use cudarc::driver::sys::CUdeviceptr;
use forge_core::{Error, Result};
use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Device memory, or host memory that the device reads in place.
pub(crate) struct Memory {
    context: Arc<Context>,
    pub(super) address: CUdeviceptr,
    pub(super) bytes: usize,
    /// Set if the bytes lie in pinned host memory.
    pub(super) host: Option<*mut c_void>,
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
    /// `bytes` of pinned host memory that the device can read and write.
    pub(crate) fn pinned(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        const DEVICE_MAP: c_uint = 2;
        context.enter("allocate pinned")?;
        let mut host = null_mut();
        // SAFETY: writes one pointer.
        let code = unsafe { (context.driver.cuMemHostAlloc)(&mut host, bytes.max(1), DEVICE_MAP) };
        context.check("allocate pinned", code)?;
        // From here on `drop` frees the memory.
        let mut memory = Self { context: context.clone(), address: 0, bytes, host: Some(host) };
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
    /// Copies `source` into pinned memory. The caller has made sure that the device does not use
    /// these bytes now (fresh memory, or an event waited for).
    pub(crate) fn fill(&mut self, offset: usize, source: &[u8]) -> Result<()> {
        let host = self.host_at("write", offset, source.len())?;
        // SAFETY: the range lies in pinned memory that `self` owns; `source` is other memory.
        unsafe { host.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
        Ok(())
    }
    /// Copies from pinned memory. The caller has waited for the copy that filled these bytes.
    pub(crate) fn copy_out(&self, offset: usize, target: &mut [u8]) -> Result<()> {
        let host = self.host_at("read", offset, target.len())?;
        // SAFETY: the range lies in pinned memory that `self` owns; `target` is other memory.
        unsafe { target.as_mut_ptr().copy_from_nonoverlapping(host, target.len()) };
        Ok(())
    }
    fn host_at(&self, stage: &str, offset: usize, bytes: usize) -> Result<*mut u8> {
        self.fits(stage, offset, bytes)?;
        let host =
            self.host.ok_or_else(|| Error::device(stage, "staging is not in host memory"))?;
        // SAFETY: the offset lies inside the allocation.
        Ok(unsafe { host.cast::<u8>().add(offset) })
    }
    /// Fails unless the range lies in this memory.
    pub(super) fn fits(&self, stage: &str, offset: usize, bytes: usize) -> Result<()> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let reason = format!("{bytes} bytes at {offset} leave a buffer of {}", self.bytes);
        Err(Error::device(stage, reason))
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
