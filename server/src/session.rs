//! From a checkpoint to an engine that is ready: plan, load, allocate.

use crate::output::{note, size};
use anyhow::Result;
use forge_core::Backend;
use forge_core::engine::{Engine, EngineOptions, MemoryPlan};
use forge_core::model::load;
use forge_core::weights::Checkpoint;
use indicatif::{ProgressBar, ProgressStyle};

/// Bytes of weights above which loading shows its progress.
const WORTH_A_BAR: u64 = 256 << 20;

/// Plans, loads and allocates. The plan is printed first, unless `quiet`.
///
/// # Errors
/// If the plan does not fit the device; those of loading.
pub(crate) fn start<B: Backend>(
    backend: B,
    checkpoint: &Checkpoint,
    options: &EngineOptions,
    quiet: bool,
) -> Result<Engine<B>> {
    let info = backend.info();
    let plan = MemoryPlan::new::<B>(&checkpoint.config, info, checkpoint.device_bytes(), options)?;
    if !quiet {
        let (name, kind, device) = (&checkpoint.name, info.backend, &info.name);
        note(format_args!("{name} on {kind} ({device}): {plan}"));
    }
    let bar = bar("loading", if quiet { 0 } else { plan.weight_bytes });
    let model = load(&backend, checkpoint, &mut |state| bar.set_position(state.done_bytes))?;
    bar.finish_and_clear();
    let seconds = bar.elapsed().as_secs_f64();
    // Mapping a file takes no time and is no news.
    if !quiet && plan.weight_bytes > WORTH_A_BAR && seconds > 0.1 {
        let rate = plan.weight_bytes as f64 / 1e9 / seconds;
        note(format_args!("loaded {} in {seconds:.1} s, {rate:.2} GB/s", size(plan.weight_bytes)));
    }
    Ok(Engine::with_plan(backend, model, plan)?)
}

/// Bytes of all tensors as stored.
pub(crate) fn weight_bytes(checkpoint: &Checkpoint) -> u64 {
    checkpoint.tensors.values().map(|tensor| tensor.data.len() as u64).sum()
}

/// A bar over `bytes` on standard error; invisible for little work and where nobody looks.
pub(crate) fn bar(verb: &'static str, bytes: u64) -> ProgressBar {
    if bytes < WORTH_A_BAR {
        return ProgressBar::hidden();
    }
    let template = "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::new(bytes).with_style(style).with_message(verb)
}
