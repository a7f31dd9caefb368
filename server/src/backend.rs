//! The one choice of a backend; everything behind it is generic.

use crate::machine;
use crate::output::note;
use anyhow::{Result, bail};
use clap::ValueEnum;
use forge_core::reference::Cpu;
use forge_core::{Backend, Error};

/// What the user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendKind {
    /// The first of cuda, wgpu and cpu that works.
    Auto,
    /// NVIDIA cards.
    Cuda,
    /// Vulkan, Metal, DX12.
    Wgpu,
    /// The processor.
    Cpu,
}

/// Which backend to open, and which device of it.
#[derive(Clone, Debug)]
pub(crate) struct BackendChoice {
    /// Backend.
    pub(crate) kind: BackendKind,
    /// Index of the device, for wgpu also a part of its name; `None` = the first or best.
    pub(crate) device: Option<String>,
}

/// What is done with a backend once it is open.
pub(crate) trait BackendVisitor {
    /// Result.
    type Output;

    /// Called once.
    ///
    /// # Errors
    /// Whatever the work meets.
    fn visit<B: Backend>(self, backend: B) -> Result<Self::Output>;
}

/// Opens the chosen backend and gives it to `visitor`. The only place that names the backends.
///
/// # Errors
/// If the backend asked for cannot be opened; those of the visitor.
pub(crate) fn with_backend<V: BackendVisitor>(
    choice: &BackendChoice,
    visitor: V,
) -> Result<V::Output> {
    #[cfg(feature = "cuda")]
    if choice.tries(BackendKind::Cuda) {
        match open_cuda(choice) {
            Ok(backend) => return visitor.visit(backend),
            Err(error) => choice.pass_over(error)?,
        }
    }
    #[cfg(feature = "wgpu")]
    if choice.tries(BackendKind::Wgpu) {
        match open_wgpu(choice) {
            Ok(backend) => return visitor.visit(backend),
            Err(error) => choice.pass_over(error)?,
        }
    }
    if choice.tries(BackendKind::Cpu) {
        return visitor.visit(Cpu::new());
    }
    bail!("this forge was built without the backend {}", choice.name())
}

#[cfg(feature = "cuda")]
fn open_cuda(choice: &BackendChoice) -> forge_core::Result<forge_cuda::Cuda> {
    let device = match &choice.device {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            Error::invalid("device", format!("{text} is not the number of a CUDA device"))
        })?,
    };
    forge_cuda::Cuda::open(&forge_cuda::Options { device, cache: None })
}

#[cfg(feature = "wgpu")]
fn open_wgpu(choice: &BackendChoice) -> forge_core::Result<forge_wgpu::WgpuBackend> {
    // A software adapter is slower than the CPU backend: it has to be asked for. Where there cannot
    // be another one, its driver is not even loaded, which takes time and may print warnings.
    let hardware = || machine::may_have_gpu() && forge_wgpu::adapters().iter().any(|a| !a.software);
    if choice.kind == BackendKind::Auto && !hardware() {
        return Err(Error::unsupported("backend wgpu", "there is no hardware adapter"));
    }
    let options = forge_wgpu::WgpuOptions { adapter: choice.device.clone(), ..Default::default() };
    forge_wgpu::WgpuBackend::open(&options)
}

impl BackendChoice {
    fn name(&self) -> String {
        self.kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn tries(&self, kind: BackendKind) -> bool {
        self.kind == kind || self.kind == BackendKind::Auto
    }

    /// Goes on to the next backend if any will do. Hardware that is not there is no news; a device
    /// that is there and does not work is.
    fn pass_over(&self, error: Error) -> Result<()> {
        if self.kind != BackendKind::Auto {
            return Err(error.into());
        }
        match error {
            Error::Unsupported { .. } => tracing::debug!("{error}"),
            error => note(format_args!("{error}; trying the next backend")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name;

    impl BackendVisitor for Name {
        type Output = &'static str;
        fn visit<B: Backend>(self, backend: B) -> Result<&'static str> {
            Ok(backend.info().backend)
        }
    }

    #[test]
    fn the_processor_is_always_there() {
        let open = |kind| with_backend(&BackendChoice { kind, device: None }, Name);
        assert_eq!(open(BackendKind::Cpu).unwrap(), "cpu");
        assert!(open(BackendKind::Auto).is_ok());
    }
}
