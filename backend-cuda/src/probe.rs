//! What `forge doctor` shows of CUDA.

use crate::compile;
use crate::ffi::{Attribute, Driver};
use crate::nvrtc::Nvrtc;
use std::path::PathBuf;

/// State of CUDA on this machine.
#[derive(Clone, Debug)]
pub struct Probe {
    /// CUDA version of the driver, `major.minor`.
    pub driver_version: String,
    /// Devices in the driver's order.
    pub devices: Vec<ProbeDevice>,
    /// Path and version of the run-time compiler, or what to install.
    pub compiler: Result<(PathBuf, String), String>,
    /// Folder of compiled kernels; `None` without a home folder.
    pub cache: Option<PathBuf>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct ProbeDevice {
    /// Name.
    pub name: String,
    /// Compute capability, `10 * major + minor`.
    pub capability: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sms: u32,
}

/// Looks without opening a device.
///
/// # Errors
/// One sentence if there is no usable driver.
pub fn probe() -> Result<Probe, String> {
    let driver = Driver::load()?;
    let version = driver.version();
    let devices = (0..driver.device_count()).filter_map(|index| {
        let device = driver.device(index).ok()?;
        let attribute = |a| u32::try_from(driver.attribute(device, a)).unwrap_or(0);
        Some(ProbeDevice {
            name: driver.name(device),
            capability: attribute(Attribute::Major) * 10 + attribute(Attribute::Minor),
            memory_bytes: driver.total_bytes(device),
            sms: attribute(Attribute::Sms),
        })
    });
    Ok(Probe {
        driver_version: format!("{}.{}", version / 1000, version % 1000 / 10),
        devices: devices.collect(),
        compiler: Nvrtc::find().map(|nvrtc| (nvrtc.path().to_owned(), nvrtc.version())),
        cache: compile::default_cache(),
    })
}
