// argmax
// math:     out[r] = lowest index of the largest logits[r, c]; -1 if the row holds a NaN.
// shapes:   logits f32 [rows, columns], out i32 [rows]; partial u64 [rows, splits] scratch.
// launch:   argmax_partial: grid (splits, rows), block 256, a block takes every splits-th tile of
//           1024 columns; argmax_final: one warp a row, grid rows, block 32.
// bytes:    4 * rows * columns.
// limits:   rows <= 65535, columns < 2^31.
// numerics: exact; -0 equals 0.
#include "ordered.cuh"

constexpr u64 NAN_KEY = ~0ull;

INLINE u64 logit_key(float x, u32 index) {
    // Adding 0 turns -0 into 0, so that the two tie.
    return x != x ? NAN_KEY : ordered_key(x + 0.0f, index);
}
INLINE u64 larger(u64 a, u64 b) {
    return a > b ? a : b;
}

KERNEL argmax_partial(const float* logits, u64 stride, u32 columns, u64* partial) {
    __shared__ u64 warps[WARP];
    wait_for_previous();
    start_next();
    logits += u64(blockIdx.y) * stride;
    bool aligned = (u64(logits) & 15) == 0;
    u64 best = 0;
    u32 step = gridDim.x * blockDim.x * 4;
    for (u32 c = (blockIdx.x * blockDim.x + threadIdx.x) * 4; c < columns; c += step) {
        if (aligned && c + 4 <= columns) {
            float4 v = *reinterpret_cast<const float4*>(logits + c);
            best = larger(best, larger(larger(logit_key(v.x, c), logit_key(v.y, c + 1)),
                                       larger(logit_key(v.z, c + 2), logit_key(v.w, c + 3))));
        } else {
            for (u32 i = 0; i < 4 && c + i < columns; ++i) {
                best = larger(best, logit_key(logits[c + i], c + i));
            }
        }
    }
    best = warp_max_key(best);
    u32 lane = threadIdx.x % WARP, count = blockDim.x / WARP;
    if (lane == 0) {
        warps[threadIdx.x / WARP] = best;
    }
    __syncthreads();
    if (threadIdx.x < WARP) {
        best = warp_max_key(lane < count ? warps[lane] : 0);
        if (lane == 0) {
            partial[u64(blockIdx.y) * gridDim.x + blockIdx.x] = best;
        }
    }
}

KERNEL argmax_final(const u64* partial, u32 splits, i32* out, u64 out_stride) {
    wait_for_previous();
    start_next();
    u64 best = 0;
    for (u32 i = threadIdx.x; i < splits; i += WARP) {
        best = larger(best, partial[u64(blockIdx.x) * splits + i]);
    }
    best = warp_max_key(best);
    if (threadIdx.x == 0) {
        out[blockIdx.x * out_stride] = best == NAN_KEY ? -1 : i32(key_index(best));
    }
}
