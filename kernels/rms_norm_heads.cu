// rms_norm_heads
// math:     x[r, h, i] = x[r, h, i] / sqrt(mean_i x[r, h, i]^2 + eps) * w[i], in place.
// shapes:   x f32 rows of row_stride elements, head h at column h * head_stride, dim values;
//           w f32 [dim].
// launch:   one warp a head, 4 warps a block, grid ceil(rows * heads / 4).
// bytes:    8 * rows * heads * dim (the second read hits the cache).
// limits:   rows * heads < 2^31.
// numerics: f32; lane-strided sums, then a butterfly over the warp.
#include "common.cuh"

KERNEL rms_norm_heads(float* x, u64 row_stride, u64 head_stride, u32 heads, u32 dim, const float* w,
                      float eps, u32 tasks) {
    wait_for_previous();
    start_next();
    u32 lane = threadIdx.x % WARP;
    u32 task = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (task >= tasks) {
        return;
    }
    float* head = x + u64(task / heads) * row_stride + u64(task % heads) * head_stride;
    float square = 0.0f;
    for (u32 i = lane; i < dim; i += WARP) {
        square += head[i] * head[i];
    }
    float factor = 1.0f / sqrtf(warp_sum(square) / float(dim) + eps);
    for (u32 i = lane; i < dim; i += WARP) {
        head[i] = head[i] * factor * w[i];
    }
}
