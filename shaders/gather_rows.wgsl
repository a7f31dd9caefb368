// math:     out[i] = x[indices[i]]; zeros for a negative index
// shapes:   x f32 [R, H], indices i32 [N], out f32 [N, H], rows strided
// launch:   one invocation per element of out, 256 a workgroup, grid folded to two dimensions
// bytes:    8 N H + 4 N
// limits:   N H < 2^32; an index of R or more is clamped
// numerics: a copy

struct Params {
    rows: u32,
    columns: u32,
    source_rows: u32,
    x_offset: u32,
    x_stride: u32,
    indices_offset: u32,
    indices_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> indices: array<i32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn gather_rows(
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
    let source = indices[p.indices_offset + row * p.indices_stride];
    var value = 0.0;
    if source >= 0 {
        value = x[p.x_offset + min(u32(source), p.source_rows - 1u) * p.x_stride + column];
    }
    out[p.out_offset + row * p.out_stride + column] = value;
}
