// math:     out = x / sqrt(mean(x^2) + eps) * w over each row (Zhang and Sennrich 2019)
// shapes:   x, out f32 [R, H], rows strided; w f32 [H]; padded rows are normed like any other
// launch:   one workgroup of 256 per row; 1 KiB of workgroup memory
// bytes:    12 R H (the second read of a row comes from the cache) + 4 H
// limits:   R < 2^32, folded to two dimensions
// numerics: sum of squares in f32, 256 partial sums and a tree

struct Params {
    rows: u32,
    columns: u32,
    x_offset: u32,
    x_stride: u32,
    w_offset: u32,
    out_offset: u32,
    out_stride: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn rms_norm(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if row >= p.rows {
        return;
    }
    let source = p.x_offset + row * p.x_stride;
    let target_row = p.out_offset + row * p.out_stride;
    var squares = 0.0;
    for (var i = lane; i < p.columns; i += WORKGROUP) {
        let value = x[source + i];
        squares += value * value;
    }
    let mean = workgroup_sum(squares, lane) / f32(p.columns);
    let factor = 1.0 / sqrt(mean + p.eps);
    for (var i = lane; i < p.columns; i += WORKGROUP) {
        out[target_row + i] = x[source + i] * factor * w[p.w_offset + i];
    }
}
