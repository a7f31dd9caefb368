// moe_route
// math:     the k largest logits of a row, largest first, ties to the lower index;
//           weight_j = exp(l_j - l_0) / sum_i exp(l_i - l_0): softmax over all experts,
//           renormalised over the chosen ones.
// shapes:   logits f32 [rows, experts], ids i32 [rows, k], weights f32 [rows, k].
// launch:   one warp a row, one row a block; a lane keeps PER logits as ordered keys.
// bytes:    4 * rows * (experts + 2 * k).
// limits:   experts <= 32 * PER, k <= experts.
// numerics: f32; the order is that of the bits (-0 below 0), as in the reference.
#include "ordered.cuh"

template <u32 PER>
INLINE void moe_route(const float* logits, u64 stride, u32 experts, i32* ids, u64 id_stride,
                      float* weights, u64 weight_stride, u32 k) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.x;
    u32 lane = threadIdx.x;
    logits += row * stride;
    u64 keys[PER];
#pragma unroll
    for (u32 i = 0; i < PER; ++i) {
        u32 expert = lane + i * WARP;
        // Key 0 is below every logit: taken, or not there.
        keys[i] = expert < experts ? ordered_key(logits[expert], expert) : 0;
    }
    float best = 0.0f, sum = 0.0f;
    for (u32 j = 0; j < k; ++j) {
        u64 key = 0;
#pragma unroll
        for (u32 i = 0; i < PER; ++i) {
            key = keys[i] > key ? keys[i] : key;
        }
        key = warp_max_key(key);
#pragma unroll
        for (u32 i = 0; i < PER; ++i) {
            keys[i] = keys[i] == key ? 0 : keys[i];
        }
        float value = key_value(key);
        best = j == 0 ? value : best;
        float weight = expf(value - best);
        sum += weight;
        if (lane == 0) {
            ids[row * id_stride + j] = i32(key_index(key));
            weights[row * weight_stride + j] = weight;
        }
    }
    __syncwarp();
    for (u32 j = lane; j < k; j += WARP) {
        weights[row * weight_stride + j] /= sum;
    }
}

#define MOE_ROUTE(per)                                                                          \
    KERNEL moe_route_##per(const float* logits, u64 stride, u32 experts, i32* ids, u64 id_stride, \
                           float* weights, u64 weight_stride, u32 k) {                          \
        moe_route<per>(logits, stride, experts, ids, id_stride, weights, weight_stride, k);     \
    }
MOE_ROUTE(4)
MOE_ROUTE(8)
MOE_ROUTE(16)
MOE_ROUTE(32)
