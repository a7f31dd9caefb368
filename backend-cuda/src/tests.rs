//! The backend on a driver in host memory: copies, recordings, faults, and the launch of every op
//! against the compiled signatures. What kernels compute is tested on a device.

use super::*;
use crate::ffi::fake;
use forge_core::kv::{KvLayout, KvPool, KvType};
use forge_core::ops::{
    CopyDirection, CopyPages, MoeCombine, Ops, PrepareAttention, Rope, RopePairing, StoreKv,
};
use forge_core::tensor::Heads;
use forge_core::weights::quant::StorageType;

/// The backend, or `None` with a printed line where no compiler is installed.
pub(crate) fn open() -> Option<Cuda> {
    if let Err(message) = nvrtc::Nvrtc::find() {
        eprintln!("skipped: {message}");
        return None;
    }
    let cache = std::env::temp_dir().join("forge-test-kernels");
    let options = Options { device: 0, cache: Some(cache) };
    Some(Cuda { device: Device::open(fake::driver(), &options).unwrap() })
}

pub(crate) fn f32s(cuda: &Cuda, dims: &[usize]) -> Tensor<Cuda> {
    cuda.zeros(Shape::new(dims), DType::F32).unwrap()
}
pub(crate) fn i32s(cuda: &Cuda, dims: &[usize]) -> Tensor<Cuda> {
    cuda.zeros(Shape::new(dims), DType::I32).unwrap()
}
/// Launches that `body` records.
pub(crate) fn launches(cuda: &Cuda, body: impl FnOnce(&mut Pass<'_>) -> Result<()>) -> usize {
    cuda.record(body).unwrap().launches()
}

#[test]
fn a_backend_may_move_to_the_engine_thread() {
    fn movable<T: Send + Sync>() {}
    movable::<Cuda>();
    movable::<Program>();
    movable::<Buffer>();
}

#[test]
fn writes_and_reads_pass_every_ring_boundary() {
    let Some(cuda) = open() else { return };
    let tensor = cuda.zeros(Shape::new(&[70 << 20]), DType::U8).unwrap();
    let mut back = vec![1; 64];
    cuda.read(&tensor, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 0), "fresh memory is zero");
    for len in [1, 63, 4096, 256 << 10, (256 << 10) + 1, 9 << 20, 70 << 20] {
        for round in 0..9u32 {
            let value = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(round) as u8;
            let bytes: Vec<u8> = (0..len).map(value).collect();
            cuda.write(&tensor, &bytes).unwrap();
            let mut back = vec![0; len];
            cuda.read(&tensor, &mut back).unwrap();
            assert!(bytes == back, "{len} bytes, round {round}");
            if len > 1 << 20 {
                break;
            }
        }
    }
    let part = tensor.row_range(5..9).unwrap();
    cuda.write(&part, &[1, 2, 3, 4]).unwrap();
    let mut back = [0; 10];
    cuda.read(&tensor, &mut back).unwrap();
    assert_eq!(back[5..9], [1, 2, 3, 4]);
    assert!(cuda.write(&part, &[0; 5]).is_err());
}

#[test]
fn nothing_stays_allocated() {
    let before = fake::allocations();
    let Some(cuda) = open() else { return };
    let (x, mut sum) = (f32s(&cuda, &[2, 8]), f32s(&cuda, &[2, 8]));
    let program = cuda.record(|pass| pass.add(&x, &mut sum)).unwrap();
    drop((x, sum));
    assert_eq!(fake::allocations(), before + 2, "the program keeps what it touches");
    cuda.submit(&program).unwrap();
    drop(program);
    drop(cuda);
    assert_eq!(fake::allocations(), before);
}

#[test]
fn a_failed_recording_is_closed_and_names_the_op() {
    let Some(cuda) = open() else { return };
    let (x, mut sum) = (f32s(&cuda, &[2, 8]), f32s(&cuda, &[2, 8]));
    fake::fail_launch(1);
    let error = cuda.record(|pass| pass.add(&x, &mut sum)).err().unwrap().to_string();
    assert!(error.starts_with("add:"), "{error}");
    assert!(!fake::capturing());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cuda.record(|_| panic!("in the body")).map(|_| ())
    }));
    assert!(panicked.is_err() && !fake::capturing());
    assert_eq!(launches(&cuda, |pass| pass.add(&x, &mut sum)), 1);
}

#[test]
fn a_fault_is_remembered() {
    let Some(cuda) = open() else { return };
    let (x, mut sum) = (f32s(&cuda, &[2, 8]), f32s(&cuda, &[2, 8]));
    let program = cuda.record(|pass| pass.add(&x, &mut sum)).unwrap();
    fake::fail_submit(700);
    assert!(cuda.submit(&program).is_err());
    let first = cuda.fault().unwrap().to_owned();
    for error in [cuda.submit(&program).err(), cuda.read(&x, &mut [0; 4]).err()] {
        assert!(error.unwrap().to_string().contains(&first));
    }
}

#[test]
fn old_devices_are_refused_by_name() {
    fake::set_capability(75);
    let error = Device::open(fake::driver(), &Options::default()).err().unwrap();
    fake::set_capability(80);
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("7.5"));
}

#[test]
fn wrong_arguments_are_found_at_recording() {
    let Some(cuda) = open() else { return };
    let x = f32s(&cuda, &[2, 8]);
    let kernel = pass::Kernel::new("add", "add_f32");
    let error = cuda.record(|pass| pass.launch(pass::Launch::new("add", kernel), &[(&x).into()]));
    assert!(error.err().unwrap().to_string().contains("parameters"));
    let kernel = pass::Kernel::new("add", "absent");
    let error = cuda.record(|pass| pass.launch(pass::Launch::new("add", kernel), &[]));
    assert!(error.err().unwrap().to_string().contains("no kernel absent"));
}

#[test]
fn norms_and_gates_launch() {
    let Some(cuda) = open() else { return };
    for (rows, columns) in [(1, 5120), (3, 10), (1000, 2560), (2, 40_000)] {
        let (x, w) = (f32s(&cuda, &[rows, columns]), f32s(&cuda, &[columns]));
        let (mut a, mut b) = (f32s(&cuda, &[rows, columns]), f32s(&cuda, &[rows, columns]));
        let gate_up = f32s(&cuda, &[rows, 2 * columns]);
        let count = launches(&cuda, |pass| {
            pass.rms_norm(&x, &w, 1e-6, &mut a)?;
            pass.add_rms_norm(&x, &mut b, &w, 1e-6, &mut a)?;
            pass.silu_mul(&gate_up, &mut a)?;
            let gate = Heads::strided(gate_up.clone(), 2, columns, columns / 2)?;
            pass.sigmoid_mul(&gate, &mut b)
        });
        assert_eq!(count, 4);
    }
    let (x, gate, w) = (f32s(&cuda, &[3, 256]), f32s(&cuda, &[3, 256]), f32s(&cuda, &[128]));
    let mut out = f32s(&cuda, &[3, 256]);
    fake::take_grids();
    launches(&cuda, |pass| {
        pass.gated_rms_norm(&x, &gate, &w, 1e-6, &mut out)?;
        let mut heads = Heads::packed(out.clone(), 2, 128)?;
        pass.rms_norm_heads(&mut heads, &w, 1e-6)
    });
    assert_eq!(fake::take_grids(), [[2, 1, 1], [2, 1, 1]], "six heads in blocks of four warps");
}

#[test]
fn attention_preparation_launches_for_every_kv_type() {
    let Some(cuda) = open() else { return };
    for kv_type in [KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8] {
        let layout = KvLayout { kv_type, kv_heads: 2, head_dim: 64 };
        let mut pool = KvPool::new(&cuda, layout, 4).unwrap();
        let (q, k, v) = (f32s(&cuda, &[3, 512]), f32s(&cuda, &[3, 128]), f32s(&cuda, &[3, 128]));
        let (positions, kv_rows, norm) = (i32s(&cuda, &[3]), i32s(&cuda, &[3]), f32s(&cuda, &[64]));
        let frequencies = f32s(&cuda, &[16]);
        let mut q = Heads::strided(q, 4, 128, 64).unwrap();
        let mut k = Heads::packed(k, 2, 64).unwrap();
        let pairing = RopePairing::Half;
        for norms in [None, Some((&norm, &norm))] {
            let count = launches(&cuda, |pass| {
                pass.rope(Rope {
                    positions: &positions,
                    frequencies: &frequencies,
                    pairing,
                    x: &mut q,
                })?;
                pass.store_kv(StoreKv { k: &v, v: &v, kv_rows: &kv_rows, pool: &mut pool })?;
                pass.prepare_attention(PrepareAttention {
                    q: &mut q,
                    k: &mut k,
                    v: &v,
                    norms,
                    eps: 1e-6,
                    positions: &positions,
                    frequencies: &frequencies,
                    pairing,
                    kv_rows: &kv_rows,
                    pool: &mut pool,
                })
            });
            assert_eq!(count, 3);
        }
    }
}

#[test]
fn lookups_launch_for_every_storage_type() {
    let Some(cuda) = open() else { return };
    for storage in StorageType::ALL {
        let bytes = storage.tensor_bytes(&[10, 1280]).unwrap();
        let part = HostTensor::new("t", storage, vec![10, 1280], vec![0; bytes].into()).unwrap();
        let table = cuda.upload(&[part.clone(), part], Residence::Lookup).unwrap();
        let (ids, mut out) = (i32s(&cuda, &[3]), f32s(&cuda, &[3, 1280]));
        assert_eq!(launches(&cuda, |pass| pass.embed(&ids, &table, &mut out)), 2);
    }
    let (x, indices, mut out) = (f32s(&cuda, &[9, 33]), i32s(&cuda, &[4]), f32s(&cuda, &[4, 33]));
    assert_eq!(launches(&cuda, |pass| pass.gather_rows(&x, &indices, &mut out)), 1);
}

#[test]
fn routing_sampling_and_state_copies_launch() {
    let Some(cuda) = open() else { return };
    for experts in [8, 200, 512, 1024] {
        let logits = f32s(&cuda, &[5, experts]);
        let (mut ids, mut weights) = (i32s(&cuda, &[5, 8]), f32s(&cuda, &[5, 8]));
        assert_eq!(launches(&cuda, |pass| pass.moe_route(&logits, &mut ids, &mut weights)), 1);
    }
    let (experts, weights) = (f32s(&cuda, &[10, 64]), f32s(&cuda, &[5, 2]));
    let (shared, shared_gate) = (f32s(&cuda, &[5, 64]), f32s(&cuda, &[5, 1]));
    let mut out = f32s(&cuda, &[5, 64]);
    let combine = |pass: &mut Pass<'_>| {
        pass.moe_combine(MoeCombine {
            experts: &experts,
            weights: &weights,
            shared: &shared,
            shared_gate: &shared_gate,
            out: &mut out,
        })
    };
    assert_eq!(launches(&cuda, combine), 1);
    let (logits, mut out) = (f32s(&cuda, &[4, 248_320]), i32s(&cuda, &[4]));
    assert_eq!(launches(&cuda, |pass| pass.argmax(&logits, &mut out)), 2);
    let (pairs, mut state) = (i32s(&cuda, &[3, 2]), f32s(&cuda, &[8, 4, 16, 16]));
    assert_eq!(launches(&cuda, |pass| pass.copy_state(&pairs, &mut state)), 1);
    let layout = KvLayout { kv_type: KvType::F16, kv_heads: 2, head_dim: 16 };
    let mut pool = KvPool::new(&cuda, layout, 4).unwrap();
    let table = i32s(&cuda, &[3]);
    let copy = |pass: &mut Pass<'_>| {
        pass.copy_pages(CopyPages {
            state: &mut state,
            pool: &mut pool,
            table: &table,
            state_start: 0,
            page_start: 16,
            words: 800,
            direction: CopyDirection::ToPages,
        })
    };
    assert_eq!(launches(&cuda, copy), 1);
}

#[test]
fn bandwidth_is_measured_over_memory_that_is_given_back() {
    let Some(cuda) = open() else { return };
    let held = cuda.device.context.memory().unwrap();
    // Nothing takes time in host memory, so the rate is infinite; it is a rate all the same.
    assert!(cuda.measure_bandwidth().unwrap() > 0.0);
    assert_eq!(cuda.device.context.memory().unwrap(), held);
}
