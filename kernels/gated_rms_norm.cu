// gated_rms_norm
// math:     out = w * (x / sqrt(mean(x^2) + eps)) * silu(gate) over groups of dim values.
// shapes:   x, gate, out f32 [rows, groups * dim]; w f32 [dim].
// launch:   one warp a group, 4 warps a block, grid ceil(rows * groups / 4).
// bytes:    12 * rows * groups * dim.
// limits:   rows * groups < 2^31.
// numerics: f32; lane-strided sums, then a butterfly over the warp.
#include "common.cuh"

KERNEL gated_rms_norm(const float* x, u64 x_stride, const float* gate, u64 gate_stride,
                      const float* w, float eps, float* out, u64 out_stride, u32 groups, u32 dim,
                      u32 tasks) {
    wait_for_previous();
    start_next();
    u32 lane = threadIdx.x % WARP;
    u32 task = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (task >= tasks) {
        return;
    }
    u64 row = task / groups, column = u64(task % groups) * dim;
    x += row * x_stride + column;
    gate += row * gate_stride + column;
    out += row * out_stride + column;
    float square = 0.0f;
    for (u32 i = lane; i < dim; i += WARP) {
        square += x[i] * x[i];
    }
    float factor = 1.0f / sqrtf(warp_sum(square) / float(dim) + eps);
    for (u32 i = lane; i < dim; i += WARP) {
        out[i] = w[i] * (x[i] * factor) * silu(gate[i]);
    }
}
