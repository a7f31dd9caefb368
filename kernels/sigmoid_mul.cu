// sigmoid_mul
// math:     x[r, h, i] *= sigmoid(gate[r, h, i])
// shapes:   gate f32 rows of gate_row_stride elements, head h at column h * gate_head_stride;
//           x f32 [rows, heads * dim], in place.
// launch:   grid (ceil(heads * dim / 1024), rows), block 256; a thread owns 4 consecutive columns
//           of x.
// bytes:    12 * rows * heads * dim.
// limits:   rows <= 65535; 16-byte accesses where dim is a multiple of 4 and the rows are aligned.
// numerics: f32.
#include "common.cuh"

KERNEL sigmoid_mul(const float* gate, u64 gate_row_stride, u64 gate_head_stride, float* x,
                   u64 x_stride, u32 dim, u32 columns) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (column >= columns) {
        return;
    }
    float* values = x + row * x_stride + column;
    const float* gates = gate + row * gate_row_stride;
    const float* first = gates + u64(column / dim) * gate_head_stride + column % dim;
    if (dim % 4 == 0 && ((u64(first) | u64(values)) & 15) == 0) {
        float4 g = *reinterpret_cast<const float4*>(first);
        float4 v = *reinterpret_cast<float4*>(values);
        *reinterpret_cast<float4*>(values) = make_float4(v.x * sigmoid(g.x), v.y * sigmoid(g.y),
                                                         v.z * sigmoid(g.z), v.w * sigmoid(g.w));
        return;
    }
    for (u32 i = 0; i < 4 && column + i < columns; ++i) {
        u32 c = column + i;
        values[i] *= sigmoid(gates[u64(c / dim) * gate_head_stride + c % dim]);
    }
}
