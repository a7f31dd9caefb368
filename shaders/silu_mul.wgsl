// math:     out = silu(gate) * up, gate_up = gate | up
// shapes:   gate_up f32 [R, 2 I], out f32 [R, I], rows strided
// launch:   one invocation per element of out, 256 a workgroup, grid folded to two dimensions
// bytes:    12 R I
// limits:   R I < 2^32
// numerics: f32

struct Params {
    rows: u32,
    columns: u32,
    gate_offset: u32,
    gate_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate_up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn silu_mul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups) * WORKGROUP + lane;
    if index >= p.rows * p.columns {
        return;
    }
    let row = index / p.columns;
    let column = index % p.columns;
    let gate = p.gate_offset + row * p.gate_stride + column;
    out[p.out_offset + row * p.out_stride + column] = silu(gate_up[gate]) * gate_up[gate + p.columns];
}
