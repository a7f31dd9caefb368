// paged_attention_prefill: many rows per sequence, tensor cores.
//
// math    out_i = softmax_j(scale q_i . k_j) V over the positions j <= position of row i; online
//         softmax by key tiles (Dao, "FlashAttention-2", 2023, algorithm 1).
// shapes  q f32, query head h of row r at q + r * q_row_stride + h * q_head_stride; pages u8, blocks
//         as core/src/kv.rs; sequences i32 [S, 4]; block_table i32 [S, max_blocks], entries past a
//         sequence's length are not read; out f32 [R, query_heads * D], rows out_row_stride apart.
//         Rows after the last sequence are padding and receive zeros. Sequences of skipped_rows
//         rows or fewer are left to paged_attention_decode.
// launch  grid (ceil(R * group / M) + S, kv_heads), 32 WARPS threads, M = 16 WARPS. The query heads
//         of a KV head and the rows of a sequence form one list of items, row-major; a block owns M
//         consecutive items, a warp 16 of them with all D outputs in registers. A tile of TILE keys
//         and values is multiplied while the next is copied. Dynamic shared memory:
//         `prefill_shared_bytes` in the launcher. Late items come first: they see the most keys.
// bytes   KV of a sequence once per M items from L2: rows * group / M * length * 2 D value bytes;
//         q and out once. Operations 4 D per item and visible key.
// limits  D 64, 128 or 256; TILE a multiple of 16; KV type f16, bf16, q8_0 (scale groups of 32) or
//         fp8; q, out and strides of 16-byte multiples; pages 16-byte aligned.
// numerics scores, softmax and sums in f32; q (scaled, in base 2) and probabilities rounded to the
//         16-bit operand type (bf16 for bf16 KV, else f16); q8_0 and fp8 become f16 (fp8 exactly,
//         q8_0 with one rounding). An fp8 NaN pattern reads as 480.
#include "common.cuh"
#include "paged_attention.cuh"

template <int D, int KIND, int WARPS, int TILE>
struct PrefillTiles {
    static constexpr int THREADS = 32 * WARPS;
    static constexpr int ITEMS = 16 * WARPS;
    static constexpr int VALUE_BYTES = kv_value_bytes(KIND);
    static constexpr int CHUNKS = D * VALUE_BYTES / 16;      // 16-byte chunks of a stored row
    static constexpr int PAGES = TILE / PAGE_TOKENS;
    static constexpr int SCALE_CHUNKS = KIND == KV_Q8_0 ? D / 16 : 0;  // of a page's plane
    static constexpr int PLANE_BYTES = TILE * D * 2;         // converted
    static constexpr int RAW_BYTES = TILE * D;               // quantised, scales behind
    static constexpr int RAW_PLANE_BYTES = RAW_BYTES + PAGES * SCALE_CHUNKS * 16;

    const u8* pages;
    const int* blocks;
    int kv_heads, head, length;

    // Starts copying the keys and values of tokens [start, start + TILE); those past the end of
    // the sequence become zeros, because 0 * NaN would spoil a sum.
    INLINE void copy(u8* target, int start) const {
        constexpr int PLANE = kv_quantised(KIND) ? RAW_PLANE_BYTES : PLANE_BYTES;
#pragma unroll 4
        for (int i = threadIdx.x; i < 2 * TILE * CHUNKS; i += THREADS) {
            const int plane = i / (TILE * CHUNKS), row = i / CHUNKS % TILE, chunk = i % CHUNKS;
            const bool valid = start + row < length;
            const i64 block = valid ? blocks[(start + row) / PAGE_TOKENS] : 0;
            const PlaneAddress from = plane_address<D, KIND>(pages, block, kv_heads, plane, head);
            const u8* source =
                from.values + (row % PAGE_TOKENS) * (D * VALUE_BYTES) + chunk * 16;
            const int offset =
                kv_quantised(KIND) ? row * D + chunk * 16 : tile_offset<D>(row, chunk);
            copy_async_16(target + plane * PLANE + offset, source, valid);
        }
        if constexpr (KIND == KV_Q8_0) {
            for (int i = threadIdx.x; i < 2 * PAGES * SCALE_CHUNKS; i += THREADS) {
                const int plane = i / (PAGES * SCALE_CHUNKS);
                const int page = i / SCALE_CHUNKS % PAGES, chunk = i % SCALE_CHUNKS;
                const bool valid = start + page * PAGE_TOKENS < length;
                const i64 block = valid ? blocks[start / PAGE_TOKENS + page] : 0;
                const PlaneAddress from =
                    plane_address<D, KIND>(pages, block, kv_heads, plane, head);
                u8* scales = target + plane * PLANE + RAW_BYTES;
                copy_async_16(scales + (page * SCALE_CHUNKS + chunk) * 16,
                              from.scales + chunk * 16, valid);
            }
        }
        cp_async_commit();
    }

    // Converts a raw quantised tile of tokens [start, ..) to f16.
    INLINE void convert(u8* target, const u8* raw,
                                            int start) const {
#pragma unroll 2
        for (int i = threadIdx.x; i < 2 * TILE * CHUNKS; i += THREADS) {
            const int plane = i / (TILE * CHUNKS), row = i / CHUNKS % TILE, chunk = i % CHUNKS;
            const u8* from = raw + plane * RAW_PLANE_BYTES;
            const uint4 bytes = *reinterpret_cast<const uint4*>(from + row * D + chunk * 16);
            u32 scale = 0;
            if (KIND == KV_Q8_0 && start + row < length) {
                scale = reinterpret_cast<const u16*>(
                    from + RAW_BYTES)[row * (D / 32) + chunk / 2];
            }
            uint4 first, last;
            bytes_to_f16_16<KIND>(bytes, scale, first, last);
            u8* to = target + plane * PLANE_BYTES;
            *reinterpret_cast<uint4*>(to + tile_offset<D>(row, 2 * chunk)) = first;
            *reinterpret_cast<uint4*>(to + tile_offset<D>(row, 2 * chunk + 1)) = last;
        }
    }
};

template <int D, int KIND, int WARPS, int TILE>
INLINE void paged_attention_prefill(
    const float* q, i64 q_row_stride, i64 q_head_stride,
    const u8* pages, const int* sequences,
    int sequence_count, const int* block_table, int max_blocks, float scale,
    float* out, i64 out_row_stride, int rows, int kv_heads, int group,
    int skipped_rows) {
    using Tiles = PrefillTiles<D, KIND, WARPS, TILE>;
    constexpr bool QUANTISED = kv_quantised(KIND);
    constexpr int STAGE_BYTES = 2 * Tiles::PLANE_BYTES;
    extern __shared__ __align__(1024) u8 shared[];
    wait_for_previous();
    start_next();
    const int head = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

    Piece piece;
    if (!find_piece(sequences, sequence_count, group, Tiles::ITEMS, skipped_rows, blockIdx.x,
                    piece)) {
        if (blockIdx.x != gridDim.x - 1) return;
        const int columns = group * D;
        for (int row = first_padded_row(sequences, sequence_count); row < rows; ++row) {
            float* target = out + row * out_row_stride + head * columns;
            for (int i = threadIdx.x; i < columns; i += Tiles::THREADS) target[i] = 0.0f;
        }
        return;
    }
    const Sequence sequence = piece.sequence;
    const int item_count = sequence.rows * group;
    const int first_item = (piece.count - 1 - piece.index) * Tiles::ITEMS;
    const int last_item = min(first_item + Tiles::ITEMS, item_count) - 1;
    const int context = sequence.length - sequence.rows;
    const int key_count = context + last_item / group + 1;
    const int tile_count = (key_count + TILE - 1) / TILE;

    u8* const queries = shared;
    u8* const tiles = shared + Tiles::ITEMS * D * 2;
    u8* const raw = tiles + STAGE_BYTES;
    const Tiles loader{pages, block_table + (i64)piece.sequence_index * max_blocks, kv_heads,
                       head, key_count};
    loader.copy(QUANTISED ? raw : tiles, 0);

    // Scores are wanted in base 2, so that the exponential is one instruction.
    const float factor = scale * 1.4426950408889634f;
    for (int i = threadIdx.x; i < Tiles::ITEMS * (D / 8); i += Tiles::THREADS) {
        const int row = i / (D / 8), chunk = i % (D / 8), item = first_item + row;
        uint4 packed = make_uint4(0, 0, 0, 0);
        if (item < item_count) {
            const float* source = q + (sequence.first + item / group) * q_row_stride +
                                  (head * group + item % group) * q_head_stride + chunk * 8;
            const float4 a = reinterpret_cast<const float4*>(source)[0];
            const float4 b = reinterpret_cast<const float4*>(source)[1];
            packed = make_uint4(pack_pair<KIND>(a.x * factor, a.y * factor),
                                pack_pair<KIND>(a.z * factor, a.w * factor),
                                pack_pair<KIND>(b.x * factor, b.y * factor),
                                pack_pair<KIND>(b.z * factor, b.w * factor));
        }
        *reinterpret_cast<uint4*>(queries + tile_offset<D>(row, chunk)) = packed;
    }

    const int item_low = first_item + warp * 16 + lane / 4, item_high = item_low + 8;
    const int position_low = context + item_low / group;
    const int position_high = context + item_high / group;
    const int first_position = context + (first_item + warp * 16) / group;
    const int query_row = warp * 16 + (lane & 15), query_chunk = lane >> 4;
    const int key_row = (lane >> 4) * 8 + (lane & 7), key_chunk = (lane >> 3) & 1;
    const int value_row = ((lane >> 3) & 1) * 8 + (lane & 7), value_chunk = lane >> 4;

    float o[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
    float max_low = MINUS_INFINITY, max_high = MINUS_INFINITY, sum_low = 0.0f, sum_high = 0.0f;

    for (int tile = 0; tile < tile_count; ++tile) {
        u8* keys = tiles;
        cp_async_wait<0>();
        __syncthreads();
        if (QUANTISED) {
            loader.convert(tiles, raw, tile * TILE);
            __syncthreads();
            if (tile + 1 < tile_count) loader.copy(raw, (tile + 1) * TILE);
        } else {
            keys = tiles + (tile & 1) * STAGE_BYTES;
            // The other stage was last read before the barrier above.
            u8* next = tiles + ((tile + 1) & 1) * STAGE_BYTES;
            if (tile + 1 < tile_count) loader.copy(next, (tile + 1) * TILE);
        }
        const u8* values = keys + Tiles::PLANE_BYTES;

        float s[TILE / 8][4];
#pragma unroll
        for (int n = 0; n < TILE / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll 4
        for (int k = 0; k < D / 16; ++k) {
            u32 a[4];
            ldmatrix_x4(a, queries + tile_offset<D>(query_row, 2 * k + query_chunk));
#pragma unroll
            for (int n = 0; n < TILE / 16; ++n) {
                u32 b[4];
                ldmatrix_x4(b, keys + tile_offset<D>(n * 16 + key_row, 2 * k + key_chunk));
                mma_pair<KIND>(s[2 * n], a, b[0], b[1]);
                mma_pair<KIND>(s[2 * n + 1], a, b[2], b[3]);
            }
        }
        if ((tile + 1) * TILE > first_position + 1) {
#pragma unroll
            for (int n = 0; n < TILE / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int key = tile * TILE + n * 8 + 2 * (lane & 3) + (e & 1);
                    if (key > (e < 2 ? position_low : position_high)) s[n][e] = MINUS_INFINITY;
                }
            }
        }
        float low = max_low, high = max_high;
#pragma unroll
        for (int n = 0; n < TILE / 8; ++n) {
            low = fmaxf(low, fmaxf(s[n][0], s[n][1]));
            high = fmaxf(high, fmaxf(s[n][2], s[n][3]));
        }
        low = warp_max<4>(low);
        high = warp_max<4>(high);
        if (__any_sync(FULL, low > max_low || high > max_high)) {
            const float keep_low = exp2_approx(max_low - low);
            const float keep_high = exp2_approx(max_high - high);
            sum_low *= keep_low;
            sum_high *= keep_high;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                o[n][0] *= keep_low;
                o[n][1] *= keep_low;
                o[n][2] *= keep_high;
                o[n][3] *= keep_high;
            }
            max_low = low;
            max_high = high;
        }
#pragma unroll
        for (int n = 0; n < TILE / 8; ++n) {
            s[n][0] = exp2_approx(s[n][0] - max_low);
            s[n][1] = exp2_approx(s[n][1] - max_low);
            s[n][2] = exp2_approx(s[n][2] - max_high);
            s[n][3] = exp2_approx(s[n][3] - max_high);
            sum_low += s[n][0] + s[n][1];
            sum_high += s[n][2] + s[n][3];
        }
#pragma unroll
        for (int k = 0; k < TILE / 16; ++k) {
            const u32 a[4] = {pack_pair<KIND>(s[2 * k][0], s[2 * k][1]),
                               pack_pair<KIND>(s[2 * k][2], s[2 * k][3]),
                               pack_pair<KIND>(s[2 * k + 1][0], s[2 * k + 1][1]),
                               pack_pair<KIND>(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
            for (int n = 0; n < D / 16; ++n) {
                u32 b[4];
                ldmatrix_x4_trans(
                    b, values + tile_offset<D>(k * 16 + value_row, 2 * n + value_chunk));
                mma_pair<KIND>(o[2 * n], a, b[0], b[1]);
                mma_pair<KIND>(o[2 * n + 1], a, b[2], b[3]);
            }
        }
    }

    const float inverse_low = 1.0f / warp_sum<4>(sum_low), inverse_high = 1.0f / warp_sum<4>(sum_high);
    const int column = (head * group) * D + 2 * (lane & 3);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int item = half ? item_high : item_low;
        if (item >= item_count) continue;
        const float inverse = half ? inverse_high : inverse_low;
        float* target = out + (sequence.first + item / group) * out_row_stride + column +
                        (item % group) * D;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
            *reinterpret_cast<float2*>(target + n * 8) =
                make_float2(o[n][2 * half] * inverse, o[n][2 * half + 1] * inverse);
        }
    }
}

// The name says D, and the items and keys of a tile: a launcher that assumes others finds no entry.
#define PREFILL(type, KIND, D, ITEMS, TILE)                                                        \
    KERNEL __launch_bounds__(2 * ITEMS, 1) paged_attention_prefill_##type##_##D##_##ITEMS##x##TILE( \
        const float* q, i64 q_row_stride, i64 q_head_stride, const u8* pages,                      \
        const int* sequences, int sequence_count, const int* block_table, int max_blocks,          \
        float scale, float* out, i64 out_row_stride, int rows, int kv_heads, int group,            \
        int skipped_rows) {                                                                        \
        paged_attention_prefill<D, KIND, ITEMS / 16, TILE>(                                        \
            q, q_row_stride, q_head_stride, pages, sequences, sequence_count, block_table,         \
            max_blocks, scale, out, out_row_stride, rows, kv_heads, group, skipped_rows);          \
    }
#define PREFILL_SIZES(type, KIND)      \
    PREFILL(type, KIND, 64, 128, 64)   \
    PREFILL(type, KIND, 128, 128, 64)  \
    PREFILL_256(type, KIND)
// What fits the shared memory of a block: 227, 163 and 99 KiB.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define PREFILL_256(type, KIND) PREFILL(type, KIND, 256, 128, 64)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define PREFILL_256(type, KIND) PREFILL(type, KIND, 256, 128, 32)
#else
#define PREFILL_256(type, KIND) PREFILL(type, KIND, 256, 64, 32)
#endif

PREFILL_SIZES(f16, KV_F16)
PREFILL_SIZES(bf16, KV_BF16)
PREFILL_SIZES(q8_0, KV_Q8_0)
PREFILL_SIZES(fp8, KV_FP8)
