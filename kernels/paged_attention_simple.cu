// paged_attention_simple: any head size and KV type, f32 throughout; for f32 KV and odd heads.
//
// math    out_i = softmax_j(scale q_i . k_j) V over the positions j <= position of row i, online.
// shapes  as paged_attention_prefill; D is an argument.
// launch  grid (R, query_heads), 128 threads. A warp owns every fourth key of one query head of one
//         row, a lane D / 32 values of it; the four warps are merged in shared memory (8 KiB).
// bytes   the keys and values of a row's sequence once per row and query head (from L2 mostly).
// limits  D <= 256, for q8_0 a multiple of the scale group min(D, 32).
// numerics f32, keys and values exactly as stored.
#include "common.cuh"
#include "paged_attention.cuh"

constexpr int SIMPLE_WARPS = 4;
constexpr int SIMPLE_PER_LANE = 8;

// Value `index` of a head's plane, and its scale from the plane of scales.
template <int KIND>
INLINE float stored_value(const u8* values,
                                              const u8* scales, int index, int scale_group) {
    if (KIND == KV_F32) return reinterpret_cast<const float*>(values)[index];
    if (KIND == KV_F16) return to_f32(reinterpret_cast<const f16*>(values)[index]);
    if (KIND == KV_BF16) return to_f32(reinterpret_cast<const bf16*>(values)[index]);
    if (KIND == KV_Q8_0) {
        const f16 scale = reinterpret_cast<const f16*>(scales)[index / scale_group];
        return to_f32(scale) * reinterpret_cast<const i8*>(values)[index];
    }
    return e4m3_to_f32(values[index]);
}

template <int KIND>
INLINE void paged_attention_simple(
    const float* q, i64 q_row_stride, i64 q_head_stride,
    const u8* pages, const int* sequences,
    int sequence_count, const int* block_table, int max_blocks, float scale,
    float* out, i64 out_row_stride, int kv_heads, int group, int head_dim) {
    __shared__ float merged_max[SIMPLE_WARPS], merged_sum[SIMPLE_WARPS];
    __shared__ float warp_values[SIMPLE_WARPS][32 * SIMPLE_PER_LANE];
    wait_for_previous();
    start_next();
    const int row = blockIdx.x, query_head = blockIdx.y, head = query_head / group;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float* target = out + row * out_row_stride + (i64)query_head * head_dim;

    int index = 0, position = -1;
    for (int s = 0; s < sequence_count; ++s) {
        const Sequence sequence = load_sequence(sequences, s);
        if (row >= sequence.first && row < sequence.first + sequence.rows) {
            index = s;
            position = sequence.length - sequence.rows + row - sequence.first;
        }
    }
    if (position < 0) {
        for (int d = threadIdx.x; d < head_dim; d += 32 * SIMPLE_WARPS) target[d] = 0.0f;
        return;
    }

    const int plane_values = PAGE_TOKENS * head_dim, scale_group = min(head_dim, 32);
    const int scale_bytes = KIND == KV_Q8_0 ? plane_values / scale_group * 2 : 0;
    const int plane_bytes = plane_values * kv_value_bytes(KIND);
    const i64 block_bytes = 2LL * kv_heads * (plane_bytes + scale_bytes);
    const float* query = q + row * q_row_stride + query_head * q_head_stride;
    float u[SIMPLE_PER_LANE], o[SIMPLE_PER_LANE];
#pragma unroll
    for (int i = 0; i < SIMPLE_PER_LANE; ++i) {
        const int d = lane + 32 * i;
        u[i] = d < head_dim ? query[d] * scale : 0.0f;
        o[i] = 0.0f;
    }
    float largest = MINUS_INFINITY, sum = 0.0f;
    const int* blocks = block_table + (i64)index * max_blocks;
    for (int key = warp; key <= position; key += SIMPLE_WARPS) {
        const u8* block = pages + blocks[key / PAGE_TOKENS] * block_bytes;
        const u8* block_scales = block + 2LL * kv_heads * plane_bytes;
        const int first = key % PAGE_TOKENS * head_dim;
        const u8* keys = block + (i64)head * plane_bytes;
        const u8* key_scales = block_scales + (i64)head * scale_bytes;
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < SIMPLE_PER_LANE; ++i) {
            const int d = lane + 32 * i;
            if (d < head_dim) {
                score += u[i] * stored_value<KIND>(keys, key_scales, first + d, scale_group);
            }
        }
        score = warp_sum(score);
        const float next = fmaxf(largest, score);
        const float keep = expf(largest - next), probability = expf(score - next);
        largest = next;
        sum = sum * keep + probability;
        const u8* values = keys + (i64)kv_heads * plane_bytes;
        const u8* value_scales = key_scales + (i64)kv_heads * scale_bytes;
#pragma unroll
        for (int i = 0; i < SIMPLE_PER_LANE; ++i) {
            const int d = lane + 32 * i;
            if (d < head_dim) {
                o[i] = o[i] * keep + probability * stored_value<KIND>(values, value_scales,
                                                                      first + d, scale_group);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < SIMPLE_PER_LANE; ++i) warp_values[warp][lane + 32 * i] = o[i];
    if (lane == 0) {
        merged_max[warp] = largest;
        merged_sum[warp] = sum;
    }
    __syncthreads();
    float total = 0.0f, weight[SIMPLE_WARPS];
    float all_max = MINUS_INFINITY;
#pragma unroll
    for (int w = 0; w < SIMPLE_WARPS; ++w) all_max = fmaxf(all_max, merged_max[w]);
#pragma unroll
    for (int w = 0; w < SIMPLE_WARPS; ++w) {
        weight[w] = expf(merged_max[w] - all_max);
        total += weight[w] * merged_sum[w];
    }
    for (int d = threadIdx.x; d < head_dim; d += 32 * SIMPLE_WARPS) {
        float value = 0.0f;
#pragma unroll
        for (int w = 0; w < SIMPLE_WARPS; ++w) value += weight[w] * warp_values[w][d];
        target[d] = value / total;
    }
}

#define SIMPLE(type, KIND)                                                                        \
    KERNEL __launch_bounds__(32 * SIMPLE_WARPS) paged_attention_simple_##type(                    \
        const float* q, i64 q_row_stride, i64 q_head_stride, const u8* pages,                     \
        const int* sequences, int sequence_count, const int* block_table, int max_blocks,         \
        float scale, float* out, i64 out_row_stride, int kv_heads, int group, int head_dim) {     \
        paged_attention_simple<KIND>(q, q_row_stride, q_head_stride, pages, sequences,            \
                                     sequence_count, block_table, max_blocks, scale, out,         \
                                     out_row_stride, kv_heads, group, head_dim);                  \
    }
SIMPLE(f32, KV_F32)
SIMPLE(f16, KV_F16)
SIMPLE(bf16, KV_BF16)
SIMPLE(q8_0, KV_Q8_0)
SIMPLE(fp8, KV_FP8)
