//! Adapters, the choice among them, and the opened device with its first recorded failure.

use forge_core::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// How to open the backend.
#[derive(Clone, Debug, Default)]
pub struct WgpuOptions {
    /// Adapter by index in [`adapters`] or by a part of its name; `None` = the best hardware one.
    pub adapter: Option<String>,
    /// Without a named adapter, refuse one that runs on the CPU instead of taking it with a warning.
    pub hardware_only: bool,
    /// Ask for the lowest limits of WebGPU and no optional feature, so that tests cover them.
    pub force_lowest: bool,
    /// Skip the comparison of every op with the CPU reference.
    pub skip_self_test: bool,
    /// Pretend that one binding covers at most this many bytes, so that tests split small tensors.
    pub max_binding_bytes: Option<u64>,
}

/// What `forge doctor` prints of an adapter.
#[derive(Clone, Debug)]
pub struct AdapterDescription {
    /// Index for [`WgpuOptions::adapter`].
    pub index: usize,
    /// Name as its driver gives it.
    pub name: String,
    /// `discrete`, `integrated`, `virtual`, `software` or `other`.
    pub kind: &'static str,
    /// Vulkan, Metal or DX12.
    pub api: String,
    /// Driver and its version.
    pub driver: String,
    /// Largest storage binding in bytes.
    pub max_binding_bytes: u64,
    /// Largest buffer in bytes.
    pub max_buffer_bytes: u64,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Optional features that shaders could use: `subgroup`, `shader-f16`.
    pub features: Vec<&'static str>,
    /// Runs on the CPU.
    pub software: bool,
}

fn instance() -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    descriptor.flags = wgpu::InstanceFlags::empty();
    wgpu::Instance::new(descriptor)
}

fn enumerate() -> Vec<wgpu::Adapter> {
    pollster::block_on(instance().enumerate_adapters(wgpu::Backends::all()))
}

/// Every adapter of this machine.
pub fn adapters() -> Vec<AdapterDescription> {
    enumerate().iter().enumerate().map(|(index, adapter)| describe(index, adapter)).collect()
}

fn describe(index: usize, adapter: &wgpu::Adapter) -> AdapterDescription {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let named =
        [(wgpu::Features::SUBGROUP, "subgroup"), (wgpu::Features::SHADER_F16, "shader-f16")];
    let features = adapter.features();
    AdapterDescription {
        index,
        name: info.name,
        kind: kind(info.device_type),
        api: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        max_binding_bytes: limits.max_storage_buffer_binding_size,
        max_buffer_bytes: limits.max_buffer_size,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        features: named.iter().filter(|(f, _)| features.contains(*f)).map(|(_, n)| *n).collect(),
        software: info.device_type == wgpu::DeviceType::Cpu,
    }
}

fn kind(device_type: wgpu::DeviceType) -> &'static str {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        wgpu::DeviceType::Cpu => "software",
        wgpu::DeviceType::Other => "other",
    }
}

/// Place in the order of preference; software comes last and only if nothing else exists.
fn preference(device_type: wgpu::DeviceType) -> u8 {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

fn choose(wanted: Option<&str>, hardware_only: bool) -> Result<wgpu::Adapter> {
    let mut found = enumerate();
    let names: Vec<String> = found.iter().map(|a| a.get_info().name).collect();
    if names.is_empty() {
        return Err(Error::unsupported("wgpu", "there is no Vulkan, Metal or DX12 adapter"));
    }
    let index = match wanted {
        Some(wanted) => find(wanted, &names).ok_or_else(|| {
            let list: Vec<_> = names.iter().enumerate().map(|(i, n)| format!("{i} {n}")).collect();
            Error::invalid("adapter", format!("{wanted}: use one of {}", list.join(", ")))
        })?,
        None => found
            .iter()
            .enumerate()
            .min_by_key(|(_, adapter)| preference(adapter.get_info().device_type))
            .map_or(0, |(index, _)| index),
    };
    let adapter = found.swap_remove(index);
    let info = adapter.get_info();
    if wanted.is_none() && hardware_only && info.device_type == wgpu::DeviceType::Cpu {
        let reason = "it is the only adapter and runs on the CPU; name it to use it";
        return Err(Error::unsupported(format!("adapter {}", info.name), reason));
    }
    Ok(adapter)
}

/// Index given as a number, else the first name that contains `wanted`, whatever the case.
fn find(wanted: &str, names: &[String]) -> Option<usize> {
    if let Ok(index) = wanted.parse::<usize>() {
        return (index < names.len()).then_some(index);
    }
    let wanted = wanted.to_lowercase();
    names.iter().position(|name| name.to_lowercase().contains(&wanted))
}

/// The first failure that the driver reported outside an error scope.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    fn set(&self, reason: String) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(reason);
    }
    /// The failure as an error of `stage`, from now on and for good: results after it are void.
    pub(crate) fn check(&self, stage: &str) -> Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Err(Error::device(stage, reason)),
            None => Ok(()),
        }
    }
}

/// An opened device.
pub(crate) struct Device {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) limits: wgpu::Limits,
    pub(crate) name: String,
    pub(crate) software: bool,
    pub(crate) failure: Failure,
    /// [`WgpuOptions::max_binding_bytes`].
    max_binding_bytes: u64,
}

impl Device {
    /// Opens the adapter that `options` ask for.
    pub(crate) fn open(options: &WgpuOptions) -> Result<Self> {
        let adapter = choose(options.adapter.as_deref(), options.hardware_only)?;
        let info = adapter.get_info();
        let software = info.device_type == wgpu::DeviceType::Cpu;
        if software {
            tracing::warn!(adapter = info.name, "running on a software adapter: slow");
        }
        let limits = limits(&adapter, options.force_lowest)?;
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("forge"),
            required_features: wgpu::Features::empty(),
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| Error::device("open", error))?;
        let failure = Failure::default();
        let uncaptured = failure.clone();
        device.on_uncaptured_error(Arc::new(move |error| uncaptured.set(error.to_string())));
        let lost = failure.clone();
        device.set_device_lost_callback(move |reason, message| {
            // Our own drop of the device reports itself too.
            if reason != wgpu::DeviceLostReason::Destroyed {
                lost.set(format!("device lost: {message}"));
            }
        });
        let name = format!("{} ({})", info.name, info.backend);
        let max_binding_bytes = options.max_binding_bytes.unwrap_or(u64::MAX);
        Ok(Self { device, queue, limits, name, software, failure, max_binding_bytes })
    }

    /// Runs `body` and turns what the driver reports meanwhile into an error of `op`.
    pub(crate) fn scoped<T>(&self, op: &str, body: impl FnOnce() -> T) -> Result<T> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let value = body();
        // Scopes close in reverse order of opening, all of them before the first error returns.
        let reported = [
            pollster::block_on(validation.pop()),
            pollster::block_on(internal.pop()),
            pollster::block_on(memory.pop()),
        ];
        match reported.into_iter().flatten().next() {
            Some(error) => Err(Error::device(op, error)),
            None => self.failure.check(op).map(|()| value),
        }
    }

    /// Most bytes of a buffer that one binding covers.
    pub(crate) fn binding_bytes(&self) -> u64 {
        let limit = self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size);
        limit.min(self.max_binding_bytes) / 16 * 16
    }
}

/// Limits to request: what the adapter has, with bindings capped where 32-bit byte counts end.
fn limits(adapter: &wgpu::Adapter, force_lowest: bool) -> Result<wgpu::Limits> {
    let has = adapter.limits();
    let lowest = wgpu::Limits::defaults();
    if force_lowest {
        return Ok(lowest);
    }
    if has.max_compute_invocations_per_workgroup < lowest.max_compute_invocations_per_workgroup
        || has.max_storage_buffers_per_shader_stage < lowest.max_storage_buffers_per_shader_stage
        || has.max_compute_workgroup_storage_size < lowest.max_compute_workgroup_storage_size
    {
        return Err(Error::unsupported(
            format!("adapter {}", adapter.get_info().name),
            "it stays below the default limits of WebGPU (8 storage buffers, 256 invocations, \
             16 KiB of workgroup memory)",
        ));
    }
    let cap = (1u64 << 32) - 16;
    Ok(wgpu::Limits {
        max_storage_buffer_binding_size: has.max_storage_buffer_binding_size.min(cap),
        ..has
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_are_found_by_index_and_by_part_of_the_name() {
        let names = ["NVIDIA H200".to_owned(), "llvmpipe (LLVM 15)".to_owned()];
        assert_eq!(find("1", &names), Some(1));
        assert_eq!(find("2", &names), None);
        assert_eq!(find("LLVMpipe", &names), Some(1));
        assert_eq!(find("radeon", &names), None);
    }

    #[test]
    fn hardware_is_preferred_to_software() {
        assert!(
            preference(wgpu::DeviceType::VirtualGpu) < preference(wgpu::DeviceType::Cpu)
                && preference(wgpu::DeviceType::DiscreteGpu)
                    < preference(wgpu::DeviceType::IntegratedGpu)
        );
    }
}
