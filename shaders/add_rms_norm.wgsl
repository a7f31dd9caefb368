// math:     sum += x; out = sum / sqrt(mean(sum^2) + eps) * w over each row
// shapes:   x, sum, out f32 [R, H], rows strided; w f32 [H]
// launch:   one workgroup of 256 per row; 1 KiB of workgroup memory
// bytes:    16 R H + 4 H (the second read of a row comes from the cache)
// limits:   R < 2^32, folded to two dimensions
// numerics: as add, then rms_norm: the same order, so the same bits

struct Params {
    rows: u32,
    columns: u32,
    x_offset: u32,
    x_stride: u32,
    sum_offset: u32,
    sum_stride: u32,
    w_offset: u32,
    out_offset: u32,
    out_stride: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> sum: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn add_rms_norm(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if row >= p.rows {
        return;
    }
    let source = p.x_offset + row * p.x_stride;
    let sum_row = p.sum_offset + row * p.sum_stride;
    let target_row = p.out_offset + row * p.out_stride;
    var squares = 0.0;
    for (var i = lane; i < p.columns; i += WORKGROUP) {
        let value = sum[sum_row + i] + x[source + i];
        sum[sum_row + i] = value;
        squares += value * value;
    }
    let mean = workgroup_sum(squares, lane) / f32(p.columns);
    let factor = 1.0 / sqrt(mean + p.eps);
    // Each invocation reads back only what it wrote itself.
    for (var i = lane; i < p.columns; i += WORKGROUP) {
        out[target_row + i] = sum[sum_row + i] * factor * w[p.w_offset + i];
    }
}
