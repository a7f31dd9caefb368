// math:     sum += x
// shapes:   x, sum f32 [R, H], rows strided; padded rows are added like any other
// launch:   one invocation per element, 256 a workgroup, grid folded to two dimensions
// bytes:    12 R H
// limits:   R H < 2^32
// numerics: one f32 addition

struct Params {
    rows: u32,
    columns: u32,
    x_offset: u32,
    x_stride: u32,
    sum_offset: u32,
    sum_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> sum: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn add(
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
    sum[p.sum_offset + row * p.sum_stride + column] += x[p.x_offset + row * p.x_stride + column];
}
