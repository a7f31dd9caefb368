// gather_rows
// math:     out[i, c] = x[indices[i], c]; 0 for a negative index, indices past the end clamped.
// shapes:   x f32 [x_rows, columns], indices i32 [rows], out f32 [rows, columns].
// launch:   grid (ceil(columns / 1024), rows), block 256; a thread owns 4 consecutive columns.
// bytes:    8 * rows * columns.
// limits:   rows <= 65535; 16-byte accesses where both rows are aligned, else single elements.
// numerics: a copy.
#include "common.cuh"

KERNEL gather_rows(const float* x, u64 x_stride, u32 x_rows, const i32* indices, u64 index_stride,
                   float* out, u64 out_stride, u32 columns) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    i32 index = indices[row * index_stride];
    float* to = out + row * out_stride + column;
    const float* from = x + u64(min(u32(max(index, 0)), x_rows - 1)) * x_stride + column;
    if (column + 4 <= columns && ((u64(from) | u64(to)) & 15) == 0) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (index >= 0) {
            v = *reinterpret_cast<const float4*>(from);
        }
        *reinterpret_cast<float4*>(to) = v;
        return;
    }
    for (u32 i = 0; i < 4 && column + i < columns; ++i) {
        to[i] = index >= 0 ? from[i] : 0.0f;
    }
}
