//! The design's table: hit rates in per cent of prompt tokens.

use super::*;

/// Distance at which a figure counts as reproduced.
const TOLERANCE: f64 = 0.3;

fn hit(workload: Workload, setting: Setting) -> f64 {
    100.0 * run(workload, &setting).unwrap().hit_rate
}

/// Shorter than the command's runs, to keep the tests fast.
fn short(trace: Trace, tenants: usize) -> Workload {
    Workload { warm_up: 12, measured: 12, ..Workload::reference(trace, tenants) }
}

fn setting(kv_type: KvType, snapshot: SnapshotType, host_gib: u64) -> Setting {
    Setting {
        host_bytes: host_gib << 30,
        policy: Some(EvictionPolicy::Reuse),
        ..Setting::reference(kv_type, snapshot)
    }
}

fn check(setting: Setting, expected: &[(usize, f64)]) {
    for (tenants, expected) in expected {
        let hit = hit(short(Trace::Agents, *tenants), setting);
        assert!((hit - expected).abs() <= TOLERANCE, "{tenants} tenants: {hit:.2}, not {expected}");
    }
}

#[test]
fn blocks_hold_the_sizes_of_the_design() {
    let f32 = setting(KvType::Bf16, SnapshotType::F32, 0);
    assert_eq!((f32.block_bytes, f32.snapshot_blocks()), (512 << 10, 99));
    let fp8 = setting(KvType::Fp8, SnapshotType::Bf16, 0);
    assert_eq!((fp8.block_bytes, fp8.snapshot_blocks()), (256 << 10, 101));
}

#[test]
fn table_ideal() {
    let ideal = setting(KvType::Bf16, SnapshotType::Free, 0);
    check(ideal, &[(5, 94.5), (10, 94.5), (20, 94.5), (40, 94.5), (80, 94.5)]);
}

#[test]
fn table_f32() {
    let f32 = setting(KvType::Bf16, SnapshotType::F32, 0);
    check(f32, &[(5, 94.5), (10, 94.5), (20, 94.5)]);
    // The design has 90.0 here.
    assert!(hit(short(Trace::Agents, 40), f32) >= 90.0 - TOLERANCE);
}

#[test]
fn table_bf16() {
    let bf16 = setting(KvType::Bf16, SnapshotType::Bf16, 0);
    check(bf16, &[(5, 94.5), (10, 94.5), (20, 94.5), (40, 94.5)]);
}

#[test]
fn table_bf16_and_host() {
    let host = setting(KvType::Bf16, SnapshotType::Bf16, 60);
    check(host, &[(5, 94.5), (10, 94.5), (20, 94.5), (40, 94.5), (80, 93.8)]);
}

#[test]
fn table_fp8_and_host() {
    let host = setting(KvType::Fp8, SnapshotType::Bf16, 60);
    check(host, &[(5, 94.5), (10, 94.5), (20, 94.5), (40, 94.5), (80, 94.5)]);
}

#[test]
#[ignore = "takes a minute"]
fn table_of_many_tenants() {
    check(setting(KvType::Bf16, SnapshotType::Free, 0), &[(320, 0.0)]);
    check(setting(KvType::Bf16, SnapshotType::F32, 0), &[(160, 0.0), (320, 0.0)]);
    check(setting(KvType::Bf16, SnapshotType::Bf16, 0), &[(320, 0.0)]);
    check(setting(KvType::Bf16, SnapshotType::Bf16, 60), &[(160, 94.4)]);
    check(setting(KvType::Fp8, SnapshotType::Bf16, 60), &[(160, 94.5), (320, 94.5)]);
    let host = setting(KvType::Bf16, SnapshotType::Bf16, 60);
    // The design has 88.9 here.
    assert!(hit(short(Trace::Agents, 320), host) >= 88.9 - TOLERANCE);
}

#[test]
fn the_density_rule_keeps_a_part_where_recency_keeps_little() {
    let usual = Setting { policy: None, ..setting(KvType::Bf16, SnapshotType::Bf16, 0) };
    assert_eq!(usual.options().policy, EvictionPolicy::Density);
    check(usual, &[(20, 94.5), (40, 94.5)]);
    let f32 = Setting { policy: None, ..setting(KvType::Bf16, SnapshotType::F32, 0) };
    check(f32, &[(20, 94.5), (40, 94.5)]);
    // The design's best without a host tier.
    for (tenants, setting, least) in [(80, f32, 47.1), (80, usual, 76.8), (160, usual, 14.5)] {
        let hit = hit(Workload::reference(Trace::Agents, tenants), setting);
        assert!(hit >= least - TOLERANCE, "{tenants} tenants: {hit:.2}, not {least}");
    }
}

#[test]
fn other_traces_come_near_the_ideal() {
    for trace in Trace::ALL {
        let ideal = hit(short(trace, 20), setting(KvType::Bf16, SnapshotType::Free, 0));
        let real = hit(short(trace, 20), setting(KvType::Bf16, SnapshotType::Bf16, 0));
        // A message that is rewritten takes the ends behind it with it.
        let distance = if trace == Trace::Rewritten { 3.0 } else { 0.5 };
        assert!(real >= ideal - distance, "{}: {real:.2} of {ideal:.2}", trace.name());
    }
}

#[test]
fn a_run_repeats() {
    let setting = setting(KvType::Bf16, SnapshotType::F32, 1);
    let runs = [(); 2].map(|()| run(short(Trace::Agents, 40), &setting).unwrap());
    assert_eq!(runs[0].computed_tokens, runs[1].computed_tokens);
    assert_eq!(runs[0].stats, runs[1].stats);
}

#[test]
fn what_cannot_run_is_refused() {
    let small = Setting { device_bytes: 1 << 20, ..setting(KvType::Bf16, SnapshotType::F32, 0) };
    assert!(run(short(Trace::Agents, 1), &small).is_err());
    let usual = setting(KvType::Bf16, SnapshotType::F32, 0);
    assert!(run(short(Trace::Agents, 0), &usual).is_err());
}
