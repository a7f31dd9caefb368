// store_kv
// math:     pool[kv_rows[r]] = (k[r], v[r]), converted to the pool's type.
// shapes:   k, v f32 [rows, kv_heads * head_dim]; kv_rows i32 [rows] = block * 16 + token,
//           negative = not stored; pages: blocks of block_stride bytes (core/src/kv.rs).
// launch:   one warp for a head of k or v, 4 warps a block, grid ceil(2 * kv_heads * rows / 4).
// bytes:    2 * rows * kv_heads * head_dim * (4 + bytes of a stored value).
// limits:   blocks aligned to 4 bytes; q8_0: head_dim below 32 or a multiple of it; kv_rows inside
//           the pool are the caller's duty, rows past it are dropped.
// numerics: nearest even; q8_0: scale = f16(max |x| / 127) of each group; fp8: e4m3, saturating.
#include "kv_store.cuh"

template <u32 TYPE>
INLINE void store_kv(const float* k, u64 k_stride, const float* v, u64 v_stride, const i32* kv_rows,
                     u64 kv_row_stride, const KvPool& pool, u32 blocks, u32 tasks) {
    wait_for_previous();
    start_next();
    u32 task = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (task >= tasks) {
        return;
    }
    u64 row = task / (2 * pool.kv_heads);
    u32 head = task % pool.kv_heads, plane = task / pool.kv_heads % 2;
    i32 kv_row = kv_rows[row * kv_row_stride];
    if (kv_row < 0 || u32(kv_row) / BLOCK_TOKENS >= blocks) {
        return;
    }
    const float* source = plane == 0 ? k + row * k_stride : v + row * v_stride;
    store_head<TYPE>(pool, plane, head, kv_row, source + u64(head) * pool.head_dim);
}

#define STORE_KV(name, type)                                                                     \
    KERNEL store_kv_##name(const float* k, u64 k_stride, const float* v, u64 v_stride,           \
                           const i32* kv_rows, u64 kv_row_stride, u8* pages, u64 block_stride,   \
                           u32 kv_heads, u32 head_dim, u32 blocks, u32 tasks) {                  \
        KvPool pool = {pages, block_stride, kv_heads, head_dim};                                 \
        store_kv<type>(k, k_stride, v, v_stride, kv_rows, kv_row_stride, pool, blocks, tasks);   \
    }
STORE_KV(f32, KV_F32)
STORE_KV(f16, KV_F16)
STORE_KV(bf16, KV_BF16)
STORE_KV(q8_0, KV_Q8_0)
STORE_KV(fp8, KV_FP8)
