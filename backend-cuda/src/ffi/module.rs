//! Loaded machine code.

use super::Context;
use cudarc::driver::sys::{CUfunction, CUmodule};
use forge_core::{Error, Result};
use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

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
    pub(super) function: CUfunction,
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
