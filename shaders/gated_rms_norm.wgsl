// math:     out = w * (x / sqrt(mean(x^2) + eps)) * silu(gate) over groups of `dim` values
// shapes:   x, gate, out f32 [R, heads dim], rows strided; w f32 [dim]
// launch:   one workgroup of 64 per head of a row, grid folded; 256 bytes of workgroup memory
// bytes:    12 R heads dim + 4 dim
// limits:   R heads < 2^32
// numerics: sum of squares in f32, 64 partial sums and a tree

struct Params {
    rows: u32,
    heads: u32,
    dim: u32,
    x_offset: u32,
    x_stride: u32,
    gate_offset: u32,
    gate_stride: u32,
    w_offset: u32,
    out_offset: u32,
    out_stride: u32,
    eps: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> gate: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn gated_rms_norm(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups);
    if index >= p.rows * p.heads {
        return;
    }
    let row = index / p.heads;
    let column = index % p.heads * p.dim;
    let source = p.x_offset + row * p.x_stride + column;
    let gates = p.gate_offset + row * p.gate_stride + column;
    let target_head = p.out_offset + row * p.out_stride + column;
    var squares = 0.0;
    for (var i = lane; i < p.dim; i += WORKGROUP) {
        let value = x[source + i];
        squares += value * value;
    }
    let mean = workgroup_sum(squares, lane) / f32(p.dim);
    let factor = 1.0 / sqrt(mean + p.eps);
    for (var i = lane; i < p.dim; i += WORKGROUP) {
        out[target_head + i] = w[p.w_offset + i] * (x[source + i] * factor) * silu(gate[gates + i]);
    }
}
