// paged_attention_decode: few rows per sequence, keys split over blocks, tensor cores.
//
// math    out_i = softmax_j(scale q_i . k_j) V over the positions j <= position of row i. Every warp
//         keeps (maximum, sum, weighted values) over its pages; warps, then blocks, are merged by
//         rescaling to the common maximum (Dao et al., "Flash-Decoding", 2023).
// shapes  q, pages, sequences, block_table, out: as paged_attention_prefill. partials f32:
//         values [P, query_heads, splits, D], then (maximum, sum) [P, query_heads, splits, 2],
//         P = R. With a row_limit only sequences of at most so many rows are computed (the others
//         are left to paged_attention_prefill), and P = S * row_limit. Padding rows receive zeros.
// launch  grid (splits * item_tiles, kv_heads, S), 32 WARPS threads. Items are the rows of a
//         sequence times the query heads of the KV head, row-major; a block owns 16 of them (more in
//         turn, if a sequence has more than 16 item_tiles) and one split of the pages. The number
//         of splits in use follows from the sequence's real length, the other blocks leave at
//         once. A warp owns every WARPS-th page of the split and streams its key and value planes
//         through a ring of DEPTH planes of its own: no block barrier until the merge. Dynamic
//         shared memory: `decode_shared_bytes` in the launcher. A sequence with one split in use is
//         done; else paged_attention_combine, grid (P, query_heads), D / 4 threads, adds the splits
//         in the order of their numbers.
// bytes   the sequence's keys and values once per 16 items (the item tiles are neighbours in the
//         grid, so that all but the first read L2); q and out once; 8 D splits bytes of partials
//         per row and query head, which stay in L2.
// limits  D 64, 128 or 256; group <= 16; KV type f16, bf16, q8_0 (scale groups of
//         32) or fp8; q, out and strides of 16-byte multiples; pages 16-byte aligned.
// numerics q as the sum of two 16-bit values, so scores have f32 accuracy for stored keys;
//         probabilities rounded to f16, for bf16 KV as the sum of two bf16; all sums in f32. q8_0 and
//         fp8 become f16 (fp8 exactly, q8_0 with one rounding). An fp8 NaN pattern reads as 480.
#include "common.cuh"
#include "paged_attention.cuh"

constexpr int DECODE_ITEMS = 16;
// Pages that make another split worth its merge.
constexpr int DECODE_SPLIT_PAGES = 8;

// Splits that share the keys of a sequence, of the `splits` that were launched.
INLINE int used_splits(int length, int splits) {
    constexpr int KEYS = DECODE_SPLIT_PAGES * PAGE_TOKENS;
    return min(splits, (length + KEYS - 1) / KEYS);
}

// A warp's stream of key and value planes: plane 2n is the keys of its n-th page, 2n + 1 the values.
template <int D, int KIND, int WARPS, int DEPTH>
struct PlaneRing {
    static constexpr int VALUE_BYTES = kv_value_bytes(KIND);
    static constexpr int CHUNKS = D * VALUE_BYTES / 16;
    static constexpr int VALUES_BYTES = PAGE_TOKENS * D * VALUE_BYTES;
    static constexpr int SCALE_BYTES = KIND == KV_Q8_0 ? D : 0;
    static constexpr int SLOT_BYTES = VALUES_BYTES + SCALE_BYTES;
    static constexpr int CONVERTED_BYTES = kv_quantised(KIND) ? PAGE_TOKENS * D * 2 : 0;
    static constexpr int WARP_BYTES = DEPTH * SLOT_BYTES + CONVERTED_BYTES;

    const u8* pages;
    const int* blocks;  // of the warp's pages: entry n * WARPS is the n-th
    u8* memory;
    int kv_heads, head, page_count, first_page, length;
    int issued, consumed, write_slot, read_slot, block_ids;

    // Starts the copy of the next plane; past the end, an empty group keeps the count.
    INLINE void issue() {
        const int lane = threadIdx.x & 31, n = issued >> 1;
        if (n < page_count) {
            if ((issued & 63) == 0) {
                // One table read serves 32 pages; its latency would otherwise precede every copy.
                block_ids = n + lane < page_count ? blocks[(n + lane) * WARPS] : 0;
            }
            const i64 block = __shfl_sync(FULL, block_ids, n & 31);
            const PlaneAddress from =
                plane_address<D, KIND>(pages, block, kv_heads, issued & 1, head);
            const int valid_rows = length - (first_page + n * WARPS) * PAGE_TOKENS;
            u8* slot = memory + write_slot * SLOT_BYTES;
#pragma unroll
            for (int i = 0; i < PAGE_TOKENS * CHUNKS / 32; ++i) {
                const int index = i * 32 + lane, row = index / CHUNKS, chunk = index % CHUNKS;
                const int offset =
                    kv_quantised(KIND) ? index * 16 : tile_offset<D>(row, chunk);
                copy_async_16(slot + offset, from.values + index * 16, row < valid_rows);
            }
            if (KIND == KV_Q8_0 && lane < D / 16) {
                copy_async_16(slot + VALUES_BYTES + lane * 16, from.scales + lane * 16);
            }
        }
        cp_async_commit();
        ++issued;
        write_slot = write_slot + 1 == DEPTH ? 0 : write_slot + 1;
    }

    // The oldest plane as a tile of 16-bit values. `release` must follow the last read of it.
    INLINE const u8* wait() {
        cp_async_wait<DEPTH - 1>();
        __syncwarp();
        const u8* slot = memory + read_slot * SLOT_BYTES;
        read_slot = read_slot + 1 == DEPTH ? 0 : read_slot + 1;
        const int valid_rows = length - (first_page + (consumed >> 1) * WARPS) * PAGE_TOKENS;
        ++consumed;
        if constexpr (!kv_quantised(KIND)) return slot;
        u8* converted = memory + DEPTH * SLOT_BYTES;
        const u16* scales = reinterpret_cast<const u16*>(slot + VALUES_BYTES);
#pragma unroll 4
        for (int i = 0; i < PAGE_TOKENS * CHUNKS / 32; ++i) {
            const int index = i * 32 + (threadIdx.x & 31);
            const int row = index / CHUNKS, chunk = index % CHUNKS;
            uint4 bytes = *reinterpret_cast<const uint4*>(slot + index * 16);
            // Scales past the length are whatever the page held before.
            u32 scale = 0;
            if (KIND == KV_Q8_0 && row < valid_rows) scale = scales[row * (D / 32) + chunk / 2];
            uint4 first, last;
            bytes_to_f16_16<KIND>(bytes, scale, first, last);
            *reinterpret_cast<uint4*>(converted + tile_offset<D>(row, 2 * chunk)) = first;
            *reinterpret_cast<uint4*>(converted + tile_offset<D>(row, 2 * chunk + 1)) = last;
        }
        __syncwarp();
        issue();
        return converted;
    }
    INLINE void release() {
        if (kv_quantised(KIND)) return;
        __syncwarp();
        issue();
    }
};

// Scaled queries of items [first_item, + 16) as two tiles whose sum they are.
template <int D, int KIND>
INLINE void store_queries(u8* high, u8* low,
                                              const float* q, i64 row_stride,
                                              i64 head_stride, int first_row, int first_head,
                                              int group, int first_item, int item_count,
                                              float factor) {
    for (int i = threadIdx.x; i < DECODE_ITEMS * (D / 2); i += blockDim.x) {
        const int row = i / (D / 2), pair = i % (D / 2), item = first_item + row;
        float2 value = make_float2(0.0f, 0.0f);
        if (item < item_count) {
            value = reinterpret_cast<const float2*>(
                q + (first_row + item / group) * row_stride +
                (first_head + item % group) * head_stride)[pair];
        }
        value.x *= factor;
        value.y *= factor;
        const u32 rounded = pack_pair<KIND>(value.x, value.y);
        const float2 kept = unpack_pair<KIND>(rounded);
        const u32 rest = pack_pair<KIND>(value.x - kept.x, value.y - kept.y);
        const int offset = tile_offset<D>(row, pair / 4) + (pair % 4) * 4;
        *reinterpret_cast<u32*>(high + offset) = rounded;
        *reinterpret_cast<u32*>(low + offset) = rest;
    }
}

// A lane's part of the running softmax: rows g and g + 8 of the items.
template <int D>
struct Running {
    float o[D / 8][4];
    float max_low, max_high, sum_low, sum_high;
};

template <int D, int KIND>
INLINE void page_scores(float (&s)[2][4], const u8* high,
                                            const u8* low, const u8* keys) {
    const int lane = threadIdx.x & 31;
    const int query_row = lane & 15, query_chunk = lane >> 4;
    const int key_row = (lane >> 4) * 8 + (lane & 7), key_chunk = (lane >> 3) & 1;
    // Eight independent chains: a product waits long for the one before it.
    float parts[4][2][4];
#pragma unroll
    for (int i = 0; i < 32; ++i) parts[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll 4
    for (int k = 0; k < D / 16; k += 2) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            u32 a[4], rest[4], b[4];
            ldmatrix_x4(a, high + tile_offset<D>(query_row, 2 * (k + j) + query_chunk));
            ldmatrix_x4(rest, low + tile_offset<D>(query_row, 2 * (k + j) + query_chunk));
            ldmatrix_x4(b, keys + tile_offset<D>(key_row, 2 * (k + j) + key_chunk));
            mma_pair<KIND>(parts[j][0], a, b[0], b[1]);
            mma_pair<KIND>(parts[j][1], a, b[2], b[3]);
            mma_pair<KIND>(parts[2 + j][0], rest, b[0], b[1]);
            mma_pair<KIND>(parts[2 + j][1], rest, b[2], b[3]);
        }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            s[n][e] = (parts[0][n][e] + parts[1][n][e]) + (parts[2][n][e] + parts[3][n][e]);
        }
    }
}

// Turns scores into probabilities under the running maximum, and rescales what is summed.
template <int D>
INLINE void page_softmax(Running<D>& run, float (&s)[2][4]) {
    const float low = warp_max<4>(fmaxf(fmaxf(s[0][0], s[0][1]), fmaxf(s[1][0], s[1][1])));
    const float high = warp_max<4>(fmaxf(fmaxf(s[0][2], s[0][3]), fmaxf(s[1][2], s[1][3])));
    if (__any_sync(FULL, low > run.max_low || high > run.max_high)) {
        const float new_low = fmaxf(run.max_low, low), new_high = fmaxf(run.max_high, high);
        // A row that has seen no visible key has maximum -inf; its sums are zero.
        const float keep_low = low > run.max_low ? exp2_approx(run.max_low - new_low) : 1.0f;
        const float keep_high = high > run.max_high ? exp2_approx(run.max_high - new_high) : 1.0f;
        run.sum_low *= keep_low;
        run.sum_high *= keep_high;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
            run.o[n][0] *= keep_low;
            run.o[n][1] *= keep_low;
            run.o[n][2] *= keep_high;
            run.o[n][3] *= keep_high;
        }
        run.max_low = new_low;
        run.max_high = new_high;
    }
    const float base_low = run.max_low == MINUS_INFINITY ? 0.0f : run.max_low;
    const float base_high = run.max_high == MINUS_INFINITY ? 0.0f : run.max_high;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        s[n][0] = exp2_approx(s[n][0] - base_low);
        s[n][1] = exp2_approx(s[n][1] - base_low);
        s[n][2] = exp2_approx(s[n][2] - base_high);
        s[n][3] = exp2_approx(s[n][3] - base_high);
        run.sum_low += s[n][0] + s[n][1];
        run.sum_high += s[n][2] + s[n][3];
    }
}

template <int D, int KIND>
INLINE void add_values(Running<D>& run, const float (&s)[2][4],
                                           const u8* values) {
    const int lane = threadIdx.x & 31;
    const int value_row = ((lane >> 3) & 1) * 8 + (lane & 7), value_chunk = lane >> 4;
    u32 a[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float x = s[i / 2][2 * (i % 2)], y = s[i / 2][2 * (i % 2) + 1];
        a[i] = pack_pair<KIND>(x, y);
        const float2 kept = unpack_pair<KIND>(a[i]);
        rest[i] = pack_pair<KIND>(x - kept.x, y - kept.y);
    }
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
        u32 b[4];
        ldmatrix_x4_trans(b, values + tile_offset<D>(value_row, 2 * n + value_chunk));
        mma_pair<KIND>(run.o[2 * n], a, b[0], b[1]);
        mma_pair<KIND>(run.o[2 * n + 1], a, b[2], b[3]);
        if (KIND == KV_BF16) {
            mma_pair<KIND>(run.o[2 * n], rest, b[0], b[1]);
            mma_pair<KIND>(run.o[2 * n + 1], rest, b[2], b[3]);
        }
    }
}

template <int D, int KIND, int WARPS, int DEPTH>
INLINE void paged_attention_decode(
    const float* q, i64 q_row_stride, i64 q_head_stride,
    const u8* pages, const int* sequences,
    int sequence_count, const int* block_table, int max_blocks, float scale,
    float* out, i64 out_row_stride, float* partials,
    int partial_rows, int row_limit, int rows, int kv_heads, int group, int splits,
    int item_tiles) {
    using Ring = PlaneRing<D, KIND, WARPS, DEPTH>;
    constexpr int THREADS = 32 * WARPS;
    constexpr int MERGE_STRIDE = D + 8;  // keeps the eight rows of a store in different banks
    extern __shared__ __align__(1024) u8 shared[];
    __shared__ float merged_max[WARPS][DECODE_ITEMS], merged_sum[WARPS][DECODE_ITEMS];
    wait_for_previous();
    start_next();

    const int head = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int split = blockIdx.x / item_tiles;
    if (blockIdx.x == 0 && blockIdx.z == gridDim.z - 1) {
        const int columns = group * D;
        for (int row = first_padded_row(sequences, sequence_count); row < rows; ++row) {
            float* target = out + row * out_row_stride + head * columns;
            for (int i = threadIdx.x; i < columns; i += THREADS) target[i] = 0.0f;
        }
    }
    const Sequence sequence = load_sequence(sequences, blockIdx.z);
    if (sequence.rows <= 0 || (row_limit > 0 && sequence.rows > row_limit)) return;
    const int item_count = sequence.rows * group;
    const int context = sequence.length - sequence.rows;
    const int page_count = (sequence.length + PAGE_TOKENS - 1) / PAGE_TOKENS;
    const int used = used_splits(sequence.length, splits);
    if (split >= used) return;
    const int first_page = (int)((i64)page_count * split / used);
    const int end_page = (int)((i64)page_count * (split + 1) / used);

    u8* const query_high = shared;
    u8* const query_low = shared + DECODE_ITEMS * D * 2;
    u8* const rings = shared + DECODE_ITEMS * D * 4;
    float* const merged = reinterpret_cast<float*>(rings);
    float* const partial_values = partials;
    const int first_partial = row_limit > 0 ? blockIdx.z * row_limit : sequence.first;
    float* const partial_sums = partials + (i64)partial_rows * kv_heads * group * splits * D;

    for (int tile = blockIdx.x % item_tiles; tile * DECODE_ITEMS < item_count; tile += item_tiles) {
        const int first_item = tile * DECODE_ITEMS;
        Ring ring{pages,
                  block_table + (i64)blockIdx.z * max_blocks + first_page + warp,
                  rings + warp * Ring::WARP_BYTES,
                  kv_heads,
                  head,
                  max(0, (end_page - first_page - warp + WARPS - 1) / WARPS),
                  first_page + warp,
                  sequence.length,
                  0, 0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) ring.issue();
        store_queries<D, KIND>(query_high, query_low, q, q_row_stride, q_head_stride,
                               sequence.first, head * group, group, first_item, item_count,
                               scale * 1.4426950408889634f);
        __syncthreads();

        const int position_low = context + (first_item + lane / 4) / group;
        const int position_high = context + (first_item + lane / 4 + 8) / group;
        Running<D> run;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) run.o[n][0] = run.o[n][1] = run.o[n][2] = run.o[n][3] = 0.0f;
        run.max_low = run.max_high = MINUS_INFINITY;
        run.sum_low = run.sum_high = 0.0f;
        for (int n = 0; n < ring.page_count; ++n) {
            float s[2][4];
            page_scores<D, KIND>(s, query_high, query_low, ring.wait());
            ring.release();
            const int first_key = (first_page + warp + n * WARPS) * PAGE_TOKENS;
            if (first_key + PAGE_TOKENS > context) {
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    const int key = first_key + e / 4 * 8 + 2 * (lane & 3) + (e & 1);
                    if (key > ((e & 2) ? position_high : position_low)) s[e / 4][e % 4] = MINUS_INFINITY;
                }
            }
            page_softmax<D>(run, s);
            add_values<D, KIND>(run, s, ring.wait());
            ring.release();
        }
        cp_async_wait<0>();
        run.sum_low = warp_sum<4>(run.sum_low);
        run.sum_high = warp_sum<4>(run.sum_high);

        // The rings become the table of the warps' results.
        __syncthreads();
        {
            const int row = lane / 4;
            float* low = merged + (warp * DECODE_ITEMS + row) * MERGE_STRIDE + 2 * (lane & 3);
            float* high = low + 8 * MERGE_STRIDE;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                *reinterpret_cast<float2*>(low + n * 8) = make_float2(run.o[n][0], run.o[n][1]);
                *reinterpret_cast<float2*>(high + n * 8) = make_float2(run.o[n][2], run.o[n][3]);
            }
            if ((lane & 3) == 0) {
                merged_max[warp][row] = run.max_low;
                merged_max[warp][row + 8] = run.max_high;
                merged_sum[warp][row] = run.sum_low;
                merged_sum[warp][row + 8] = run.sum_high;
            }
        }
        __syncthreads();
        const int tile_items = min(DECODE_ITEMS, item_count - first_item);
        for (int i = threadIdx.x; i < tile_items * (D / 4); i += THREADS) {
            const int row = i / (D / 4), column = i % (D / 4) * 4, item = first_item + row;
            float largest = MINUS_INFINITY, total = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) largest = fmaxf(largest, merged_max[w][row]);
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                if (merged_max[w][row] == MINUS_INFINITY) continue;
                const float weight = exp2_approx(merged_max[w][row] - largest);
                const float4 value = *reinterpret_cast<const float4*>(
                    merged + (w * DECODE_ITEMS + row) * MERGE_STRIDE + column);
                total += weight * merged_sum[w][row];
                sum.x += weight * value.x;
                sum.y += weight * value.y;
                sum.z += weight * value.z;
                sum.w += weight * value.w;
            }
            const int query_head = head * group + item % group;
            if (used == 1) {
                const i64 out_row = sequence.first + item / group;
                const float inverse = 1.0f / total;
                *reinterpret_cast<float4*>(out + out_row * out_row_stride + query_head * D + column) =
                    make_float4(sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse);
            } else {
                const i64 row_place = (i64)(first_partial + item / group) * (kv_heads * group);
                const i64 place = (row_place + query_head) * splits + split;
                *reinterpret_cast<float4*>(partial_values + place * D + column) = sum;
                if (column == 0) {
                    *reinterpret_cast<float2*>(partial_sums + place * 2) =
                        make_float2(largest, total);
                }
            }
        }
        __syncthreads();
    }
}

template <int D>
INLINE void paged_attention_combine(
    const int* sequences, int sequence_count, const float* partials,
    float* out, i64 out_row_stride, int row_limit, int splits) {
    wait_for_previous();
    start_next();
    const int query_head = blockIdx.y, column = threadIdx.x * 4;
    int row = blockIdx.x, length = 0;
    if (row_limit > 0) {
        const Sequence sequence = load_sequence(sequences, blockIdx.x / row_limit);
        row = sequence.first + blockIdx.x % row_limit;
        const bool here = sequence.rows <= row_limit && row < sequence.first + sequence.rows;
        length = here ? sequence.length : 0;
    } else {
        for (int s = 0; s < sequence_count; ++s) {
            const Sequence sequence = load_sequence(sequences, s);
            const bool here = row >= sequence.first && row < sequence.first + sequence.rows;
            length = here ? sequence.length : length;
        }
    }
    const int used = used_splits(length, splits);
    if (used <= 1) return;
    const i64 place = ((i64)blockIdx.x * gridDim.y + query_head) * splits;
    const float* values = partials + place * D + column;
    const float2* sums = reinterpret_cast<const float2*>(
        partials + (i64)gridDim.x * gridDim.y * splits * D) + place;
    float largest = MINUS_INFINITY, total = 0.0f;
    for (int i = 0; i < used; ++i) largest = fmaxf(largest, sums[i].x);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (int i = 0; i < used; ++i) {
        const float weight = exp2_approx(sums[i].x - largest);
        const float4 value = *reinterpret_cast<const float4*>(values + (i64)i * D);
        total += weight * sums[i].y;
        sum.x += weight * value.x;
        sum.y += weight * value.y;
        sum.z += weight * value.z;
        sum.w += weight * value.w;
    }
    const float inverse = 1.0f / total;
    *reinterpret_cast<float4*>(out + row * out_row_stride + query_head * D + column) =
        make_float4(sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse);
}

// The name says D, and the warps and ring depth: a launcher that assumes others finds no entry.
#define DECODE(type, KIND, D, WARPS, DEPTH)                                                       \
    KERNEL __launch_bounds__(32 * WARPS, 1) paged_attention_decode_##type##_##D##_##WARPS##x##DEPTH( \
        const float* q, i64 q_row_stride, i64 q_head_stride, const u8* pages,                     \
        const int* sequences, int sequence_count, const int* block_table, int max_blocks,         \
        float scale, float* out, i64 out_row_stride, float* partials, int partial_rows,           \
        int row_limit, int rows, int kv_heads, int group, int splits, int item_tiles) {           \
        paged_attention_decode<D, KIND, WARPS, DEPTH>(                                            \
            q, q_row_stride, q_head_stride, pages, sequences, sequence_count, block_table,        \
            max_blocks, scale, out, out_row_stride, partials, partial_rows, row_limit, rows,      \
            kv_heads, group, splits, item_tiles);                                                 \
    }
#define COMBINE(D)                                                                           \
    KERNEL __launch_bounds__(D / 4) paged_attention_combine_##D(                             \
        const int* sequences, int sequence_count, const float* partials, float* out,         \
        i64 out_row_stride, int row_limit, int splits) {                                     \
        paged_attention_combine<D>(sequences, sequence_count, partials, out, out_row_stride, \
                                   row_limit, splits);                                       \
    }
// Warps and ring depth: what fits the shared memory of a block, 227, 163 and 99 KiB.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define DECODE_256(type, KIND, DEPTH) DECODE(type, KIND, 256, 8, DEPTH)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define DECODE_256(type, KIND, DEPTH) DECODE(type, KIND, 256, 4, DEPTH)
#else
#define DECODE_256(type, KIND, DEPTH) DECODE(type, KIND, 256, 4, 2)
#endif
#define DECODE_SIZES(type, KIND, DEPTH) \
    DECODE(type, KIND, 64, 4, 4)        \
    DECODE(type, KIND, 128, 4, 4)       \
    DECODE_256(type, KIND, DEPTH)

DECODE_SIZES(f16, KV_F16, 3)
DECODE_SIZES(bf16, KV_BF16, 3)
DECODE_SIZES(q8_0, KV_Q8_0, 4)
DECODE_SIZES(fp8, KV_FP8, 4)
COMBINE(64)
COMBINE(128)
COMBINE(256)
