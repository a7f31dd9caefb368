// silu_mul
// math:     out[r, c] = silu(gate_up[r, c]) * gate_up[r, inner + c]        (Shazeer 2020, SwiGLU)
// shapes:   gate_up f32 [rows, 2 * inner], out f32 [rows, inner].
// launch:   grid (ceil(inner / 1024), rows), block 256; a thread owns 4 consecutive columns.
// bytes:    12 * rows * inner.
// limits:   rows <= 65535; 16-byte accesses where all three rows are aligned, else single elements.
// numerics: f32.
#include "common.cuh"

KERNEL silu_mul(const float* gate_up, u64 stride, float* out, u64 out_stride, u32 inner) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    const float* gate = gate_up + row * stride + column;
    const float* up = gate + inner;
    float* to = out + row * out_stride + column;
    if (column + 4 <= inner && ((u64(gate) | u64(up) | u64(to)) & 15) == 0) {
        float4 g = *reinterpret_cast<const float4*>(gate);
        float4 u = *reinterpret_cast<const float4*>(up);
        *reinterpret_cast<float4*>(to) =
            make_float4(silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w);
        return;
    }
    for (u32 i = 0; i < 4 && column + i < inner; ++i) {
        to[i] = silu(gate[i]) * up[i];
    }
}
