//! Compiles every kernel for every supported architecture; needs the compiler, not a GPU.

use forge_cuda::compile::{self, Capability};
use forge_cuda::elf;
use forge_cuda::nvrtc::{INSTALL, Nvrtc};
use forge_cuda::sources::{self, headers};

const CAPABILITIES: [Capability; 5] = [80, 86, 89, 90, 120];

/// The compiler, or `None` with a printed line; in continuous integration its absence is a failure.
fn compiler() -> Option<Nvrtc> {
    match Nvrtc::find() {
        Ok(nvrtc) => Some(nvrtc),
        Err(message) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{message}"),
        Err(message) => {
            eprintln!("skipped: {message}");
            None
        }
    }
}

/// Lines of the assembler's log that tell of spilled registers, with their kernel.
fn spills(log: &str) -> Vec<String> {
    let mut kernel = "";
    let mut found = Vec::new();
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function ") {
            kernel = name;
        }
        if line.contains("spill stores") && !line.contains(" 0 bytes spill stores") {
            found.push(format!("{kernel}: {}", line.trim()));
        }
    }
    found
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    let Some(nvrtc) = compiler() else { return };
    // `FORGE_KERNELS=add,rope` limits the run while one works on a kernel.
    let only = std::env::var("FORGE_KERNELS").unwrap_or_default();
    let mut failures = Vec::new();
    for source in sources::all() {
        if !only.is_empty() && !only.split(',').any(|name| name == source.name) {
            continue;
        }
        for capability in CAPABILITIES {
            let mut options = compile::options(capability);
            options.push("--ptxas-options=-v".into());
            let compiled = match nvrtc.compile(source.name, source.text, &headers(), &options) {
                Ok(compiled) => compiled,
                Err(message) => {
                    failures.push(format!("sm_{capability}: {message}"));
                    continue;
                }
            };
            match elf::entries(&compiled.cubin) {
                Ok(entries) => assert!(entries.iter().all(|entry| entry.parameters.is_some())),
                Err(message) => failures.push(format!("{}: {message}", source.name)),
            }
            if source.hot {
                let spills = spills(&compiled.log);
                failures.extend(spills.iter().map(|s| format!("sm_{capability}: spills: {s}")));
            }
            if !only.is_empty() {
                eprintln!("{}", compiled.log);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_hint_names_a_package() {
    assert!(INSTALL.contains("nvidia-cuda-nvrtc"));
}
