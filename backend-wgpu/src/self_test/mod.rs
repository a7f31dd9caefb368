//! Comparison of every op with the CPU reference, on small shapes, on the very adapter in use: a
//! driver that miscompiles a shader is named before it answers anything. The ops that every model
//! needs are compared when the backend opens, storage types with their first weight, KV types with
//! the first recording that uses them.

mod cases;

use crate::WgpuBackend;
use crate::ops::TileRule;
use forge_core::error::{Error, Result};
use forge_core::kv::{KvLayout, KvType};
use forge_core::reference::Cpu;
use forge_core::weights::quant::StorageType;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Largest difference allowed, relative to the reference where that is above 1: another order of
/// summation over at most a few hundred products, and WGSL's bounds on exp and division.
const TOLERANCE: f32 = 2e-4;

/// What has been compared so far.
#[derive(Default)]
pub(crate) struct Compared {
    storages: Mutex<HashSet<StorageType>>,
    layouts: Mutex<HashSet<KvLayout>>,
}

impl Compared {
    /// Runs `compare` the first time that `storage` comes by; a failure is forgotten, so that the
    /// next use fails as well.
    fn storage(&self, storage: StorageType, compare: impl FnOnce() -> Result<()>) -> Result<()> {
        once(&self.storages, storage, compare)
    }
    /// The same for a KV layout.
    fn layout(&self, layout: KvLayout, compare: impl FnOnce() -> Result<()>) -> Result<()> {
        once(&self.layouts, layout, compare)
    }
}

fn once<K: Copy + Eq + std::hash::Hash>(
    done: &Mutex<HashSet<K>>,
    key: K,
    compare: impl FnOnce() -> Result<()>,
) -> Result<()> {
    // The lock is released before the comparison, which itself uploads and records.
    if !done.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
        return Ok(());
    }
    compare().inspect_err(|_| {
        done.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    })
}

/// Runs a case on both backends and compares.
macro_rules! compare {
    ($backend:expr, $op:expr, $case:path $(, $argument:expr)*) => {
        $case($backend $(, $argument)*)
            .map_err(|error| failed($op, &error))
            .and_then(|got| close($op, &got, &$case(&Cpu::new() $(, $argument)*)?))
    };
}

fn failed(op: &str, error: &Error) -> Error {
    Error::device(op, format!("self-test: {error}"))
}

fn close(op: &str, got: &[f32], expected: &[f32]) -> Result<()> {
    if got.len() != expected.len() {
        let reason = format!("self-test: {} values instead of {}", got.len(), expected.len());
        return Err(Error::device(op, reason));
    }
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        if difference.is_nan() || difference > TOLERANCE * expected.abs().max(1.0) {
            let reason = format!(
                "self-test: value {i} is {got}, the reference has {expected}; \
                 the driver or a shader is at fault, use another backend"
            );
            return Err(Error::device(op, reason));
        }
    }
    Ok(())
}

/// The ops that depend on no storage type.
///
/// # Errors
/// [`Error::Device`] naming the op.
pub(crate) fn base_ops(backend: &WgpuBackend) -> Result<()> {
    compare!(backend, "gather_rows", cases::gather_rows)?;
    compare!(backend, "add", cases::add)?;
    compare!(backend, "rms_norm", cases::rms_norm)?;
    compare!(backend, "add_rms_norm", cases::add_rms_norm)?;
    compare!(backend, "rms_norm_heads", cases::rms_norm_heads)?;
    compare!(backend, "gated_rms_norm", cases::gated_rms_norm)?;
    compare!(backend, "rope", cases::rope)?;
    compare!(backend, "sigmoid_mul", cases::sigmoid_mul)?;
    compare!(backend, "causal_conv1d", cases::causal_conv1d)?;
    compare!(backend, "gated_delta_rule", cases::gated_delta_rule, 32, 32)?;
    compare!(backend, "silu_mul", cases::silu_mul)?;
    compare!(backend, "moe_route", cases::moe_route)?;
    compare!(backend, "moe_combine", cases::moe_combine)?;
    compare!(backend, "argmax", cases::argmax)?;
    compare!(backend, "copy_state", cases::copy_state)?;
    compare!(backend, "copy_pages", cases::copy_pages)
}

/// The ops that read weights of a type, the first time that the type is uploaded.
///
/// # Errors
/// [`Error::Device`] naming the op and the type.
pub(crate) fn storage(backend: &WgpuBackend, storage: StorageType) -> Result<()> {
    if !backend.self_test {
        return Ok(());
    }
    backend.compared.storage(storage, || {
        compare!(backend, &format!("embed {storage}"), cases::embed, storage)?;
        for rows in [1, 2, 5, 19] {
            let name = format!("linear {storage}, {rows} rows");
            compare!(backend, &name, cases::linear, storage, rows)?;
        }
        large_tile(backend, storage);
        compare!(backend, &format!("moe_linear {storage}"), cases::moe_linear, storage)
    })
}

/// Compares the large tile of `linear`, and drops it for the small one if it fails.
fn large_tile(backend: &WgpuBackend, storage: StorageType) {
    let before = backend.set_tile_rule(TileRule::Large);
    let name = format!("linear {storage}, large tile");
    let after = match compare!(backend, &name, cases::linear, storage, 70) {
        Ok(()) => before,
        Err(error) => {
            tracing::warn!(%error, "the large tile of linear is dropped for the small one");
            TileRule::Small
        }
    };
    backend.set_tile_rule(after);
}

/// The ops on a KV pool, the first time that its layout is used.
///
/// # Errors
/// [`Error::Device`] naming the op and the type.
pub(crate) fn kv(backend: &WgpuBackend, layout: KvLayout, heads_per_kv: usize) -> Result<()> {
    if !backend.self_test {
        return Ok(());
    }
    backend.compared.layout(layout, || {
        let name = format!("paged_attention {}", name(layout.kv_type));
        for rows in [1, 2, 9] {
            compare!(backend, &name, cases::paged_attention, layout, heads_per_kv, rows)?;
        }
        Ok(())
    })
}

fn name(kv_type: KvType) -> &'static str {
    match kv_type {
        KvType::F32 => "f32",
        KvType::F16 => "f16",
        KvType::Bf16 => "bf16",
        KvType::Q8_0 => "q8_0",
        KvType::Fp8 => "fp8",
    }
}

#[cfg(test)]
mod tests;
