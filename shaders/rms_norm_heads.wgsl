// math:     x = x / sqrt(mean(x^2) + eps) * w over each head, in place
// shapes:   x f32 [R, ..] with `heads` heads of `dim` values at `head_stride`; w f32 [dim]
// launch:   one workgroup of 64 per head of a row, grid folded; 256 bytes of workgroup memory
// bytes:    8 R heads dim + 4 dim
// limits:   R heads < 2^32
// numerics: sum of squares in f32, 64 partial sums and a tree

struct Params {
    rows: u32,
    heads: u32,
    dim: u32,
    x_offset: u32,
    x_stride: u32,
    head_stride: u32,
    w_offset: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn rms_norm_heads(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups);
    if index >= p.rows * p.heads {
        return;
    }
    let start = p.x_offset + index / p.heads * p.x_stride + index % p.heads * p.head_stride;
    var squares = 0.0;
    for (var i = lane; i < p.dim; i += WORKGROUP) {
        let value = x[start + i];
        squares += value * value;
    }
    let mean = workgroup_sum(squares, lane) / f32(p.dim);
    let factor = 1.0 / sqrt(mean + p.eps);
    for (var i = lane; i < p.dim; i += WORKGROUP) {
        x[start + i] = x[start + i] * factor * w[p.w_offset + i];
    }
}
