//! The backends present on this machine. An absent one is reported, and in CI (`CI` set) a missing
//! Vulkan adapter is a failure.

#[cfg(feature = "cuda")]
use forge_cuda::{Cuda, Options};

/// The CPU reference.
pub fn cpu() -> Option<forge_core::reference::Cpu> {
    Some(forge_core::reference::Cpu::new())
}

/// CUDA, where there is a driver. Without one the kernels are still compiled by forge-cuda's tests.
#[cfg(feature = "cuda")]
pub fn cuda() -> Option<Cuda> {
    match Cuda::open(&Options::default()) {
        Ok(cuda) => Some(cuda),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}
