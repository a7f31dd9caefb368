// add
// math:     sum[r, c] += x[r, c]
// shapes:   x, sum f32 [rows, columns], row strides in elements.
// launch:   grid (ceil(columns / (4 * 256)), rows), block 256; a thread owns 4 consecutive columns.
// bytes:    12 * rows * columns.
// limits:   rows <= 65535; 16-byte accesses where both rows are aligned, else single elements.
// numerics: one f32 addition.
#include "common.cuh"

KERNEL add_f32(const float* x, u64 x_stride, float* sum, u64 sum_stride, u32 columns) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    const float* from = x + row * x_stride + column;
    float* to = sum + row * sum_stride + column;
    if (column + 4 <= columns && ((u64(from) | u64(to)) & 15) == 0) {
        float4 a = *reinterpret_cast<const float4*>(from);
        float4 b = *reinterpret_cast<float4*>(to);
        *reinterpret_cast<float4*>(to) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        return;
    }
    for (u32 i = 0; i < 4 && column + i < columns; ++i) {
        to[i] += from[i];
    }
}
