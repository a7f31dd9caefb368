// math:     x *= sigmoid(gate)
// shapes:   x f32 [R, heads dim], rows strided; gate heads at `head_stride` in f32 [R, ..]
// launch:   one invocation per element, 256 a workgroup, grid folded to two dimensions
// bytes:    12 R heads dim
// limits:   R heads dim < 2^32
// numerics: f32

struct Params {
    rows: u32,
    heads: u32,
    dim: u32,
    gate_offset: u32,
    gate_stride: u32,
    head_stride: u32,
    x_offset: u32,
    x_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn sigmoid_mul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups) * WORKGROUP + lane;
    let columns = p.heads * p.dim;
    if index >= p.rows * columns {
        return;
    }
    let row = index / columns;
    let column = index % columns;
    let head = column / p.dim;
    let value = gate[p.gate_offset + row * p.gate_stride + head * p.head_stride + column % p.dim];
    x[p.x_offset + row * p.x_stride + column] *= sigmoid(value);
}
