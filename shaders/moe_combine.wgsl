// math:     out[r] = sum_j weights[r, j] experts[r k + j] + sigmoid(shared_gate[r]) shared[r]
// shapes:   experts f32 [R k, H], weights f32 [R, k], shared, out f32 [R, H], shared_gate f32
//           [R, 1]; rows strided
// launch:   one invocation per element of out, 256 a workgroup, grid folded to two dimensions
// bytes:    4 R (H (k + 2) + k + 1)
// limits:   R H < 2^32
// numerics: f32, experts in the order of their weights

struct Params {
    rows: u32,
    columns: u32,
    top_k: u32,
    experts_offset: u32,
    experts_stride: u32,
    weights_offset: u32,
    weights_stride: u32,
    shared_offset: u32,
    shared_stride: u32,
    gate_offset: u32,
    gate_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> experts: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read> shared_out: array<f32>;
@group(0) @binding(4) var<storage, read> shared_gate: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn moe_combine(
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
    var total = 0.0;
    for (var j = 0u; j < p.top_k; j++) {
        total += weights[p.weights_offset + row * p.weights_stride + j]
            * experts[p.experts_offset + (row * p.top_k + j) * p.experts_stride + column];
    }
    let gate = sigmoid(shared_gate[p.gate_offset + row * p.gate_stride]);
    total += gate * shared_out[p.shared_offset + row * p.shared_stride + column];
    out[p.out_offset + row * p.out_stride + column] = total;
}
