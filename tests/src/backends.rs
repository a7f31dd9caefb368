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

/// The default adapter of wgpu.
#[cfg(feature = "wgpu")]
pub fn wgpu() -> Option<forge_wgpu::WgpuBackend> {
    open_wgpu(&forge_wgpu::WgpuOptions::default())
}

/// The same adapter with the lowest limits of WebGPU and no optional feature.
#[cfg(feature = "wgpu")]
pub fn wgpu_lowest() -> Option<forge_wgpu::WgpuBackend> {
    open_wgpu(&forge_wgpu::WgpuOptions { force_lowest: true, ..Default::default() })
}

/// # Panics
/// In CI, where the software adapter must be there, and whenever an adapter is there but fails.
#[cfg(feature = "wgpu")]
fn open_wgpu(options: &forge_wgpu::WgpuOptions) -> Option<forge_wgpu::WgpuBackend> {
    if forge_wgpu::adapters().is_empty() {
        assert!(std::env::var_os("CI").is_none(), "no Vulkan adapter");
        println!("skipped: no Vulkan, Metal or DX12 adapter");
        return None;
    }
    Some(forge_wgpu::WgpuBackend::open(options).unwrap())
}
