// prepare_attention
// math:     rms_norm_heads of q and k, rope of both, store_kv of k and v: see those files.
// shapes:   q, k f32, heads at a stride, changed in place; v f32 [rows, kv_heads * head_dim];
//           norm weights f32 [head_dim] or null; positions, kv_rows i32 [rows]; frequencies f32
//           [pairs]; pages as in store_kv.
// launch:   one warp for a head of q, k or v, 4 warps a block,
//           grid ceil(rows * (query_heads + 2 * kv_heads) / 4); shared: 4 * head_dim floats.
// bytes:    rows * head_dim * (8 * query_heads + 8 * kv_heads + 4 * kv_heads + stored bytes).
// limits:   those of rope and store_kv; 16 * head_dim bytes of shared memory.
// numerics: as the three ops one after the other, bit for bit.
#include "kv_store.cuh"
#include "rotary.cuh"

struct HeadRows {
    float* values;
    u64 row_stride;
    u64 head_stride;
};

template <u32 TYPE>
INLINE void prepare(const HeadRows& q, u32 query_heads, const HeadRows& k, const float* v,
                    u64 v_stride, const float* q_norm, const float* k_norm, float eps,
                    const i32* positions, u64 position_stride, const float* frequencies, u32 pairs,
                    u32 adjacent, const i32* kv_rows, u64 kv_row_stride, const KvPool& pool,
                    u32 blocks, u32 tasks) {
    extern __shared__ float heads[];
    wait_for_previous();
    start_next();
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u32 task = blockIdx.x * (blockDim.x / WARP) + warp;
    if (task >= tasks) {
        return;
    }
    u32 dim = pool.head_dim, per_row = query_heads + 2 * pool.kv_heads;
    u64 row = task / per_row;
    u32 head = task % per_row;
    float* work = heads + warp * dim;
    i32 kv_row = kv_rows[row * kv_row_stride];
    bool stored = kv_row >= 0 && u32(kv_row) / BLOCK_TOKENS < blocks;
    if (head >= query_heads + pool.kv_heads) {
        head -= query_heads + pool.kv_heads;
        if (stored) {
            store_head<TYPE>(pool, 1, head, kv_row, v + row * v_stride + u64(head) * dim);
        }
        return;
    }
    bool is_key = head >= query_heads;
    head -= is_key ? query_heads : 0;
    float* source = is_key ? k.values + row * k.row_stride + head * k.head_stride
                           : q.values + row * q.row_stride + head * q.head_stride;
    const float* norm = is_key ? k_norm : q_norm;
    float square = 0.0f;
    for (u32 i = lane; i < dim; i += WARP) {
        float value = source[i];
        work[i] = value;
        square += value * value;
    }
    if (norm != nullptr) {
        float factor = 1.0f / sqrtf(warp_sum(square) / float(dim) + eps);
        for (u32 i = lane; i < dim; i += WARP) {
            work[i] = work[i] * factor * norm[i];
        }
    }
    __syncwarp();
    i32 position = positions[row * position_stride];
    if (position >= 0) {
        for (u32 i = lane; i < pairs; i += WARP) {
            float sine, cosine;
            rotation(position, frequencies[i], sine, cosine);
            u32 a, b;
            pair_columns(adjacent != 0, i, pairs, a, b);
            float u = work[a], w = work[b];
            work[a] = u * cosine - w * sine;
            work[b] = w * cosine + u * sine;
        }
    }
    __syncwarp();
    for (u32 i = lane; i < dim; i += WARP) {
        source[i] = work[i];
    }
    if (is_key && stored) {
        store_head<TYPE>(pool, 0, head, kv_row, work);
    }
}

#define PREPARE(name, type)                                                                       \
    KERNEL prepare_attention_##name(                                                              \
        float* q, u64 q_row_stride, u64 q_head_stride, u32 query_heads, float* k,                 \
        u64 k_row_stride, u64 k_head_stride, const float* v, u64 v_stride, const float* q_norm,   \
        const float* k_norm, float eps, const i32* positions, u64 position_stride,                \
        const float* frequencies, u32 pairs, u32 adjacent, const i32* kv_rows,                    \
        u64 kv_row_stride, u8* pages, u64 block_stride, u32 kv_heads, u32 head_dim, u32 blocks,   \
        u32 tasks) {                                                                              \
        HeadRows queries = {q, q_row_stride, q_head_stride};                                      \
        HeadRows keys = {k, k_row_stride, k_head_stride};                                         \
        KvPool pool = {pages, block_stride, kv_heads, head_dim};                                  \
        prepare<type>(queries, query_heads, keys, v, v_stride, q_norm, k_norm, eps, positions,    \
                      position_stride, frequencies, pairs, adjacent, kv_rows, kv_row_stride,      \
                      pool, blocks, tasks);                                                       \
    }
PREPARE(f32, KV_F32)
PREPARE(f16, KV_F16)
PREPARE(bf16, KV_BF16)
PREPARE(q8_0, KV_Q8_0)
PREPARE(fp8, KV_FP8)
