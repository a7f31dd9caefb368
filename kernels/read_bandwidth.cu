// read_bandwidth
// math:     out[b] = sum over the values that block b reads; the result only keeps the loads alive.
// shapes:   x f32 [4 * count], out f32 [gridDim.x].
// launch:   grid as many blocks as the device holds, block 512; a thread reads every
//           (blocks * 512)-th group of 4 values, 8 loads in flight.
// bytes:    16 * count.
// limits:   x aligned to 16 bytes; count a multiple of 8 * blocks * 512 is read whole, the rest is
//           left out by the caller.
// numerics: f32 sums, not used.
#include "common.cuh"

KERNEL read_bandwidth(const float4* x, u64 count, float* out) {
    u64 step = u64(gridDim.x) * blockDim.x;
    float sum = 0.0f;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i + 7 * step < count; i += 8 * step) {
        float4 v[8];
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            v[j] = x[i + j * step];
        }
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            sum += v[j].x + v[j].y + v[j].z + v[j].w;
        }
    }
    if (sum == 12345.678f) {
        out[blockIdx.x] = sum;
    }
}
