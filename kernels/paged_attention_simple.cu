// paged_attention_simple: any head size and KV type, f32 throughout; for f32 KV and odd heads.
//
// math    out_i = softmax_j(scale q_i . k_j) V over the positions j <= position of row i, online.
// shapes  as paged_attention_prefill; D is an argument.
// launch  grid (R, query_heads), 128 threads. A warp owns every fourth key of one query head of one
//         row, a lane D / 32 values of it; the four warps are merged in shared memory (8 KiB).
// bytes   the keys and values of a row's sequence once per row and query head (from L2 mostly).
// limits  D <= 256, for q8_0 a multiple of the scale group min(D, 32).
// numerics f32, keys and values exactly as stored. An fp8 NaN pattern reads as 480.
#include "common.cuh"
#include "paged_attention.cuh"

constexpr int SIMPLE_WARPS = 4;
constexpr int SIMPLE_PER_LANE = 8;

// Value `index` of a head's plane, and its scale from the plane of scales.
template <int KIND>
__device__ __forceinline__ float stored_value(const unsigned char* values,
                                              const unsigned char* scales, int index, int scale_group) {
    if (KIND == KV_F32) return reinterpret_cast<const float*>(values)[index];
    if (KIND == KV_F16) return f16_to_f32(reinterpret_cast<const unsigned short*>(values)[index]);
    if (KIND == KV_BF16) return bf16_to_f32(reinterpret_cast<const unsigned short*>(values)[index]);
    if (KIND == KV_Q8_0) {
        const uint scale = reinterpret_cast<const unsigned short*>(scales)[index / scale_group];
        return f16_to_f32(scale) * reinterpret_cast<const signed char*>(values)[index];
    }
    // e4m3 under the f16 exponent reads 2^-8 of its value.
    const uint bits = values[index];
    return f16_to_f32((bits & 0x80u) << 8 | (bits & 0x7fu) << 7) * 256.0f;
}

template <int KIND>
__global__ void __launch_bounds__(32 * SIMPLE_WARPS) paged_attention_simple(
    const float* __restrict__ q, long long q_row_stride, long long q_head_stride,
    const unsigned char* __restrict__ pages, const int* __restrict__ sequences,
    int sequence_count, const int* __restrict__ block_table, int max_blocks, float scale,
    float* __restrict__ out, long long out_row_stride, int kv_heads, int group, int head_dim) {
    __shared__ float warp_max[SIMPLE_WARPS], warp_sum[SIMPLE_WARPS];
    __shared__ float warp_values[SIMPLE_WARPS][32 * SIMPLE_PER_LANE];
    grid_dependency_wait();
    const int row = blockIdx.x, query_head = blockIdx.y, head = query_head / group;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float* target = out + row * out_row_stride + (long long)query_head * head_dim;

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
    const long long block_bytes = 2LL * kv_heads * (plane_bytes + scale_bytes);
    const float* query = q + row * q_row_stride + query_head * q_head_stride;
    float u[SIMPLE_PER_LANE], o[SIMPLE_PER_LANE];
#pragma unroll
    for (int i = 0; i < SIMPLE_PER_LANE; ++i) {
        const int d = lane + 32 * i;
        u[i] = d < head_dim ? query[d] * scale : 0.0f;
        o[i] = 0.0f;
    }
    float largest = -INFINITY, sum = 0.0f;
    const int* blocks = block_table + (long long)index * max_blocks;
    for (int key = warp; key <= position; key += SIMPLE_WARPS) {
        const unsigned char* block = pages + blocks[key / PAGE_TOKENS] * block_bytes;
        const unsigned char* block_scales = block + 2LL * kv_heads * plane_bytes;
        const int first = key % PAGE_TOKENS * head_dim;
        const unsigned char* keys = block + (long long)head * plane_bytes;
        const unsigned char* key_scales = block_scales + (long long)head * scale_bytes;
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < SIMPLE_PER_LANE; ++i) {
            const int d = lane + 32 * i;
            if (d < head_dim) {
                score += u[i] * stored_value<KIND>(keys, key_scales, first + d, scale_group);
            }
        }
#pragma unroll
        for (int step = 16; step > 0; step >>= 1) {
            score += __shfl_xor_sync(0xffffffffu, score, step);
        }
        const float next = fmaxf(largest, score);
        const float keep = expf(largest - next), probability = expf(score - next);
        largest = next;
        sum = sum * keep + probability;
        const unsigned char* values = keys + (long long)kv_heads * plane_bytes;
        const unsigned char* value_scales = key_scales + (long long)kv_heads * scale_bytes;
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
        warp_max[warp] = largest;
        warp_sum[warp] = sum;
    }
    __syncthreads();
    float total = 0.0f, weight[SIMPLE_WARPS];
    float all_max = -INFINITY;
#pragma unroll
    for (int w = 0; w < SIMPLE_WARPS; ++w) all_max = fmaxf(all_max, warp_max[w]);
#pragma unroll
    for (int w = 0; w < SIMPLE_WARPS; ++w) {
        weight[w] = expf(warp_max[w] - all_max);
        total += weight[w] * warp_sum[w];
    }
    for (int d = threadIdx.x; d < head_dim; d += 32 * SIMPLE_WARPS) {
        float value = 0.0f;
#pragma unroll
        for (int w = 0; w < SIMPLE_WARPS; ++w) value += weight[w] * warp_values[w][d];
        target[d] = value / total;
    }
}
