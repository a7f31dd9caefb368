//! Facts about the machine.

use serde::Serialize;
use std::fs;

/// Main memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Installed.
    pub(crate) total: u64,
    /// What new programs can have.
    pub(crate) available: u64,
}

/// Logical cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Memory, where Linux' `/proc` says.
pub(crate) fn memory() -> Option<Memory> {
    parse_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(Memory { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// False if the system shows no sign of a GPU: on Linux, drivers make device files.
pub(crate) fn may_have_gpu() -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let starts = |folder: &str, prefix: &str| {
        let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
    };
    // The last one is that of the Windows subsystem for Linux.
    starts("/dev/dri", "renderD") || starts("/dev", "nvidia") || starts("/dev", "dxg")
}

/// Instruction sets that matter for the CPU backend.
pub(crate) fn cpu_features() -> Vec<&'static str> {
    macro_rules! present {
        ($detect:path, $($name:tt),+) => {{
            use $detect as detect;
            [$((detect!($name), $name)),+].into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
        }};
    }
    #[cfg(target_arch = "x86_64")]
    return present!(
        std::arch::is_x86_feature_detected,
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avxvnni",
        "avx512f",
        "avx512bw",
        "avx512vnni",
        "avx512bf16"
    );
    #[cfg(target_arch = "aarch64")]
    return present!(
        std::arch::is_aarch64_feature_detected,
        "neon",
        "fp16",
        "dotprod",
        "i8mm",
        "bf16",
        "sve"
    );
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_fields_of_meminfo() {
        let text = "MemTotal:       24000 kB\nMemFree: 1 kB\nMemAvailable:   12000 kB\n";
        let memory = Memory { total: 24_576_000, available: 12_288_000 };
        assert_eq!(parse_meminfo(text), Some(memory));
        assert_eq!(parse_meminfo("MemTotal: many\n"), None);
    }
}
