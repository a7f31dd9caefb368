//! `forge doctor`: what this machine offers, and how to get what is missing.

use crate::machine;
use crate::output::{print, print_json, size};
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::process::ExitCode;

/// Show what forge finds on this machine, and how to get what is missing.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forge doctor --json")]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Everything found.
#[derive(Serialize)]
struct Findings {
    forge: &'static str,
    system: String,
    cores: usize,
    cpu_features: Vec<&'static str>,
    /// Bytes; absent where the system does not say.
    memory: Option<machine::Memory>,
    backends: Vec<BackendFinding>,
}

/// State of a backend.
#[derive(Serialize)]
struct BackendFinding {
    name: &'static str,
    usable: bool,
    /// Devices, versions.
    details: Vec<String>,
    /// What to do if it is not usable.
    fix: Option<String>,
}

impl Doctor {
    pub(super) fn run(self) -> Result<ExitCode> {
        let findings = Findings {
            forge: env!("CARGO_PKG_VERSION"),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            cores: machine::cores(),
            cpu_features: machine::cpu_features(),
            memory: machine::memory(),
            backends: backends(),
        };
        if self.json {
            print_json(&findings)?;
        } else {
            print(format_args!("{}", text(&findings)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(findings: &Findings) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "forge {} on {}", findings.forge, findings.system);
    let features = match findings.cpu_features.join(" ") {
        none if none.is_empty() => "no known extension".to_owned(),
        some => some,
    };
    let _ = writeln!(out, "processor  {} cores, {features}", findings.cores);
    let memory = findings.memory.map_or_else(
        || "unknown".to_owned(),
        |memory| format!("{}, {} available", size(memory.total), size(memory.available)),
    );
    let _ = writeln!(out, "memory     {memory}");
    for backend in &findings.backends {
        let state = if backend.usable { "ready" } else { "not usable" };
        let _ = writeln!(out, "{:<10} {state}", backend.name);
        for detail in &backend.details {
            let _ = writeln!(out, "           {detail}");
        }
        if let Some(fix) = &backend.fix {
            let _ = writeln!(out, "           to fix: {fix}");
        }
    }
    out
}

fn backends() -> Vec<BackendFinding> {
    let cpu = BackendFinding {
        name: "cpu",
        usable: true,
        details: vec![format!("{} threads", rayon::current_num_threads())],
        fix: None,
    };
    vec![
        #[cfg(feature = "cuda")]
        cuda(),
        #[cfg(feature = "wgpu")]
        wgpu(),
        cpu,
    ]
}

#[cfg(feature = "cuda")]
fn cuda() -> BackendFinding {
    let name = "cuda";
    let probe = match forge_cuda::probe() {
        Ok(probe) => probe,
        Err(reason) => {
            let fix = "install NVIDIA's driver, if there is such a card".to_owned();
            return BackendFinding { name, usable: false, details: vec![reason], fix: Some(fix) };
        }
    };
    let mut details = vec![format!("driver for CUDA {}", probe.driver_version)];
    let old = |capability: u32| capability < 80;
    details.extend(probe.devices.iter().enumerate().map(|(index, device)| {
        let major = device.capability / 10;
        let note = if old(device.capability) { ", too old: 8.0 is needed" } else { "" };
        format!(
            "device {index}: {}, {}, compute capability {major}.{}, {} SMs{note}",
            device.name,
            size(device.memory_bytes),
            device.capability % 10,
            device.sms
        )
    }));
    let has_device = probe.devices.iter().any(|device| !old(device.capability));
    let (compiler, mut fix) = match &probe.compiler {
        Ok((path, version)) => (format!("NVRTC {version}: {}", path.display()), None),
        Err(reason) => ("no NVRTC".to_owned(), Some(reason.clone())),
    };
    details.push(compiler);
    details.extend(probe.cache.iter().map(|cache| format!("kernel cache: {}", cache.display())));
    if !has_device && fix.is_none() {
        fix = Some("a card of compute capability 8.0 or newer is needed".to_owned());
    }
    BackendFinding { name, usable: has_device && fix.is_none(), details, fix }
}

#[cfg(feature = "wgpu")]
fn wgpu() -> BackendFinding {
    let adapters = forge_wgpu::adapters();
    let details = adapters
        .iter()
        .map(|adapter| {
            format!(
                "adapter {}: {} ({}, {}), bindings of {}, {}",
                adapter.index,
                adapter.name,
                adapter.kind,
                adapter.api,
                size(adapter.max_binding_bytes),
                adapter.driver
            )
        })
        .collect();
    let fix = adapters.is_empty().then(|| {
        "install a Vulkan driver, for example the packages mesa-vulkan-drivers and libvulkan1"
            .to_owned()
    });
    BackendFinding { name: "wgpu", usable: fix.is_none(), details, fix }
}
