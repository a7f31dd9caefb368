//! The comparison on the software adapter: default limits, lowest limits, and bindings so small
//! that weights, pools and states fall into parts. Absence of the adapter fails the tests.

use super::*;
use crate::WgpuOptions;
use forge_core::backend::Backend;
use forge_core::ops::Ops;
use forge_core::tensor::DType;
use std::time::Instant;

fn open(force_lowest: bool) -> WgpuBackend {
    let options = WgpuOptions { force_lowest, ..WgpuOptions::default() };
    WgpuBackend::open(&options).unwrap()
}

fn compare_all(backend: &WgpuBackend) -> Result<()> {
    base_ops(backend)?;
    compare!(backend, "gated_delta_rule", cases::gated_delta_rule, 16, 48)?;
    compare!(backend, "gated_delta_rule", cases::gated_delta_rule, 30, 33)?;
    compare!(backend, "gated_delta_rule", cases::gated_delta_rule, 128, 128)?;
    for storage in StorageType::ALL {
        self::storage(backend, storage)?;
    }
    for kv_type in [KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8] {
        for (head_dim, kv_heads, heads_per_kv) in [(16, 2, 3), (64, 1, 1), (32, 2, 12)] {
            kv(backend, KvLayout { kv_type, kv_heads, head_dim }, heads_per_kv)?;
        }
    }
    assert_eq!(backend.tile_rule(), TileRule::Size, "the large tile failed");
    kv(backend, KvLayout { kv_type: KvType::F16, kv_heads: 2, head_dim: 256 }, 4)
}

#[test]
fn every_op_equals_the_reference_on_this_adapter() {
    let start = Instant::now();
    let backend = open(false);
    println!("{}: opened and compared in {:?}", backend.device.name, start.elapsed());
    compare_all(&backend).unwrap();
    println!("everything compared in {:?}", start.elapsed());
}

#[test]
fn every_op_equals_the_reference_at_the_lowest_limits() {
    compare_all(&open(true)).unwrap();
}

/// Bindings that hold every activation of a case, but not its weights, pool or state.
#[test]
fn tensors_larger_than_a_binding_fall_into_parts() -> Result<()> {
    let small = |bytes| {
        let options = WgpuOptions {
            force_lowest: true,
            max_binding_bytes: Some(bytes),
            skip_self_test: true,
            ..WgpuOptions::default()
        };
        WgpuBackend { self_test: true, ..WgpuBackend::open(&options).unwrap() }
    };
    compare!(&small(640), "copy_state", cases::copy_state)?;
    compare!(&small(4096), "copy_pages", cases::copy_pages)?;
    compare!(&small(2400), "causal_conv1d", cases::causal_conv1d)?;
    compare!(&small(40 << 10), "gated_delta_rule", cases::gated_delta_rule, 32, 32)?;
    let backend = small(10 << 10);
    for storage in [StorageType::F32, StorageType::Bf16, StorageType::Q8_0] {
        compare!(&backend, "embed", cases::embed, storage)?;
        compare!(&backend, "linear", cases::linear, storage, 2)?;
        compare!(&backend, "linear", cases::linear, storage, 19)?;
        compare!(&backend, "moe_linear", cases::moe_linear, storage)?;
    }
    let layout = KvLayout { kv_type: KvType::F32, kv_heads: 2, head_dim: 16 };
    kv(&small(16 << 10), layout, 3)?;
    let layout = KvLayout { kv_type: KvType::Q8_0, kv_heads: 2, head_dim: 64 };
    kv(&small(25_000), layout, 2)
}

/// A case of zeros would compare nothing.
#[test]
fn cases_have_results_of_ordinary_size() {
    let cpu = Cpu::new();
    for storage in StorageType::ALL {
        let values = cases::linear(&cpu, storage, 2).unwrap();
        let largest = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!((0.1..1e4).contains(&largest), "{storage}: {largest}");
    }
    let layout = KvLayout { kv_type: KvType::F16, kv_heads: 2, head_dim: 16 };
    for values in [
        cases::paged_attention(&cpu, layout, 3, 9).unwrap(),
        cases::gated_delta_rule(&cpu, 32, 32).unwrap(),
        cases::causal_conv1d(&cpu).unwrap(),
        cases::rope(&cpu).unwrap(),
    ] {
        let zeros = values.iter().filter(|v| **v == 0.0).count();
        assert!(zeros * 4 < values.len(), "{zeros} of {} are zero", values.len());
    }
}

#[test]
fn failures_are_errors_that_name_the_op() -> Result<()> {
    let backend = open(true);
    let x = backend.zeros([2, 8].into(), DType::F32).unwrap();
    let mut out = backend.zeros([2, 9].into(), DType::F32).unwrap();
    let error = backend.record(|pass| pass.add(&x, &mut out)).err().unwrap();
    assert!(error.to_string().starts_with("add: "), "{error}");
    let (left, mut right) = (x.columns(0..4).unwrap(), x.columns(4..8).unwrap());
    let error = backend.record(|pass| pass.add(&left, &mut right)).err().unwrap();
    assert!(error.to_string().contains("add: "), "{error}");
    // More memory than any device has.
    let error = backend.zeros([1 << 20, 1 << 24].into(), DType::F32).err().unwrap();
    assert!(matches!(error, Error::OutOfMemory { .. } | Error::Device { .. }), "{error}");
    // The device still works afterwards.
    compare!(&backend, "add", cases::add)?;
    assert!(close("op", &[f32::NAN], &[0.0]).is_err());
    Ok(())
}

#[test]
fn writes_and_reads_cross_parts_at_any_word() {
    let options =
        WgpuOptions { max_binding_bytes: Some(64), skip_self_test: true, ..WgpuOptions::default() };
    let backend = WgpuBackend::open(&options).unwrap();
    let tensor = backend.zeros([5, 10].into(), DType::F32).unwrap();
    let values: Vec<f32> = (0..50).map(|i| i as f32).collect();
    backend.write(&tensor, bytemuck::cast_slice(&values)).unwrap();
    let rows = tensor.row_range(1..4).unwrap();
    let mut back = vec![0.0f32; 30];
    backend.read(&rows, bytemuck::cast_slice_mut(&mut back)).unwrap();
    assert_eq!(back, values[10..40]);
}
