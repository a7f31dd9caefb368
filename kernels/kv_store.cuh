// Writes one head into a page of the KV pool (layout: core/src/kv.rs).
#pragma once
#include "common.cuh"

constexpr u32 BLOCK_TOKENS = 16;

enum : u32 { KV_F32 = 0, KV_F16 = 1, KV_BF16 = 2, KV_Q8_0 = 3, KV_FP8 = 4 };

// Sizes of a pool; one struct, so that every kernel gets them in the same order.
struct KvPool {
    u8* pages;
    u64 block_stride;  // bytes between blocks
    u32 kv_heads;
    u32 head_dim;
};

// A warp stores `values[0..head_dim]` (global or shared memory) as key (plane 0) or value (plane
// 1) of a head at kv_row = block * BLOCK_TOKENS + token.
template <u32 TYPE>
INLINE void store_head(const KvPool& pool, u32 plane, u32 head, i32 kv_row, const float* values) {
    u32 lane = threadIdx.x % WARP;
    u32 token = u32(kv_row) % BLOCK_TOKENS;
    u8* block = pool.pages + u64(u32(kv_row) / BLOCK_TOKENS) * pool.block_stride;
    u64 first = u64((plane * pool.kv_heads + head) * BLOCK_TOKENS + token) * pool.head_dim;
    if constexpr (TYPE == KV_Q8_0) {
        u32 group = min(pool.head_dim, WARP);
        u8* scales = block + u64(2) * pool.kv_heads * BLOCK_TOKENS * pool.head_dim;
        for (u32 start = 0; start < pool.head_dim; start += group) {
            float value = lane < group ? values[start + lane] : 0.0f;
            f16 scale = to_f16(warp_max(fabsf(value)) / 127.0f);
            float inverse = scale.bits != 0 ? 1.0f / to_f32(scale) : 0.0f;
            float code = fminf(fmaxf(rintf(value * inverse), -127.0f), 127.0f);
            if (lane < group) {
                block[first + start + lane] = u8(i8(i32(code)));
            }
            if (lane == 0) {
                reinterpret_cast<u16*>(scales)[(first + start) / group] = scale.bits;
            }
        }
        return;
    }
    for (u32 i = lane; i < pool.head_dim; i += WARP) {
        float value = values[i];
        if constexpr (TYPE == KV_F32) {
            reinterpret_cast<float*>(block)[first + i] = value;
        } else if constexpr (TYPE == KV_F16) {
            reinterpret_cast<u16*>(block)[first + i] = to_f16(value).bits;
        } else if constexpr (TYPE == KV_BF16) {
            reinterpret_cast<u16*>(block)[first + i] = to_bf16(value).bits;
        } else {
            block[first + i] = f32_to_e4m3(value);
        }
    }
}
