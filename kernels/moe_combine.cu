// moe_combine
// math:     out[r, c] = sum_j weights[r, j] * experts[r * k + j, c]
//                       + sigmoid(gate[r]) * shared[r, c]
// shapes:   experts f32 [rows * k, columns], weights f32 [rows, k], shared, out f32 [rows,
//           columns], gate f32 [rows, 1].
// launch:   grid (ceil(columns / 512), rows), block 128; a thread owns 4 consecutive columns.
// bytes:    4 * rows * columns * (k + 2).
// limits:   rows <= 65535; 16-byte accesses where all rows are aligned, else single elements.
// numerics: f32, j ascending, the shared expert last.
#include "common.cuh"

KERNEL moe_combine(const float* experts, u64 expert_stride, const float* weights,
                   u64 weight_stride, u32 k, const float* shared, u64 shared_stride,
                   const float* gate, u64 gate_stride, float* out, u64 out_stride, u32 columns) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    weights += row * weight_stride;
    experts += row * k * expert_stride + column;
    shared += row * shared_stride + column;
    out += row * out_stride + column;
    float g = sigmoid(gate[row * gate_stride]);
    bool aligned = expert_stride % 4 == 0 && ((u64(experts) | u64(shared) | u64(out)) & 15) == 0;
    if (column + 4 <= columns && aligned) {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (u32 j = 0; j < k; ++j) {
            float w = weights[j];
            float4 x = *reinterpret_cast<const float4*>(experts + j * expert_stride);
            sum = make_float4(sum.x + w * x.x, sum.y + w * x.y, sum.z + w * x.z, sum.w + w * x.w);
        }
        float4 x = *reinterpret_cast<const float4*>(shared);
        *reinterpret_cast<float4*>(out) =
            make_float4(sum.x + g * x.x, sum.y + g * x.y, sum.z + g * x.z, sum.w + g * x.w);
        return;
    }
    for (u32 i = 0; i < 4 && column + i < columns; ++i) {
        float sum = 0.0f;
        for (u32 j = 0; j < k; ++j) {
            sum += weights[j] * experts[j * expert_stride + i];
        }
        out[i] = sum + g * shared[i];
    }
}
