// gated_delta_rule_scan: chunk after chunk, outputs and state.
//
// math    V', out and S of gated_delta_rule_chunked.cuh.
// shapes  qkv, ba, head_constants, state, sequences, out: as gated_delta_rule_recurrent; keys,
//         products, gates: as gated_delta_rule_prepare left them. Rows after the last sequence are
//         padding and receive zeros; a slot of -1 keeps no state.
// launch  grid (ceil(DV / (16 W)), value_heads, S), W = 2 or 4 warps. A warp owns 16 value columns of
//         one head from the first chunk to the last, the transposed state as accumulators (M = value
//         columns, N = key dimensions), so that every left operand is made from its registers and
//         warps share only what they read. STAGES chunks of keys, products and gates are in dynamic
//         shared memory, 512 DK + 33,280 bytes each, copied ahead.
// bytes   per chunk and head 512 DK + 33,280 for every 16 W value columns, from L2; 8 DV per token and
//         head; state read and written once.
// limits  DK 16, 32, 64 or 128; DV a multiple of 16; scratch 16-byte aligned.
// numerics as gated_delta_rule_chunked.cuh.
#include "gated_delta_rule_chunked.cuh"

template <int DK>
struct ChunkStage {
    static constexpr int KEY_PLANE = CHUNK * DK * 2;
    static constexpr int KEYS = 4 * KEY_PLANE;
    static constexpr int PRODUCTS = 4 * PRODUCT_PLANE;
    static constexpr int GATES = 2 * CHUNK * 4;
    static constexpr int BYTES = KEYS + PRODUCTS + GATES;

    static INLINE void copy(u8* stage, const DeltaScratch& scratch, const DeltaRows& rows,
                            i64 chunk, int key_head, int value_head) {
        const u8* keys = key_planes<DK>(scratch, chunk, rows.key_heads, key_head);
        const u8* products = product_planes(scratch, chunk, rows.value_heads, value_head);
        const u8* gates = reinterpret_cast<const u8*>(
            gate_planes(scratch, chunk, rows.value_heads, value_head));
        const int start = threadIdx.x * 16, step = blockDim.x * 16;
        for (int i = start; i < KEYS; i += step) cp_async16(stage + i, keys + i);
        for (int i = start; i < PRODUCTS; i += step) cp_async16(stage + KEYS + i, products + i);
        for (int i = start; i < GATES; i += step) {
            cp_async16(stage + KEYS + PRODUCTS + i, gates + i);
        }
        cp_async_commit();
    }
};

// One chunk: outputs, and the state after it. `s` is the transposed state, tiles over DK.
template <int DK>
INLINE void scan_chunk(float (&s)[DK / 8][4], const u8* stage, const float* values,
                       i64 value_stride, float* out, i64 out_stride, int count) {
    using Stage = ChunkStage<DK>;
    const int lane = threadIdx.x & 31;
    const u8* const k_high = stage;
    const u8* const k_low = stage + Stage::KEY_PLANE;
    const u8* const q_high = stage + 2 * Stage::KEY_PLANE;
    const u8* const q_low = stage + 3 * Stage::KEY_PLANE;
    const u8* const t_high = stage + Stage::KEYS;
    const u8* const p_high = t_high + 2 * PRODUCT_PLANE;
    const float* const decay = reinterpret_cast<const float*>(stage + Stage::KEYS + Stage::PRODUCTS);
    const float* const remaining = decay + CHUNK;
    const int column = lane / 4, token = 2 * (lane & 3);

    // x = (V - diag(e^G) K S)^T and o = (diag(e^G) Q S)^T, tiles over tokens.
    float x[CHUNK / 8][4], o[CHUNK / 8][4];
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) x[n][e] = o[n][e] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < DK / 16; ++step) {
        Left a;
        left_from_accumulators(a, s[2 * step], s[2 * step + 1]);
#pragma unroll
        for (int pair = 0; pair < CHUNK / 16; ++pair) {
            RightPair k, q;
            load_right<DK>(k, k_high, k_low, lane, pair, step);
            load_right<DK>(q, q_high, q_low, lane, pair, step);
            multiply(x[2 * pair], x[2 * pair + 1], o[2 * pair], o[2 * pair + 1], a, k, a, q);
        }
    }
    values += token * value_stride + column;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int t = n * 8 + token + (e & 1);
            const float v = t < count ? values[(e & 1) * value_stride + (e >> 1) * 8] : 0.0f;
            x[n][e] = v - decay[t] * x[n][e];
            o[n][e] *= decay[t];
        }
        values += 8 * value_stride;
    }

    // w = V'^T = x T^T; T is lower triangular.
    float w[CHUNK / 8][4];
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) w[n][0] = w[n][1] = w[n][2] = w[n][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < CHUNK / 16; ++step) {
        Left a;
        left_from_accumulators(a, x[2 * step], x[2 * step + 1]);
        // Tiles above the diagonal are zeros: one pair of them at most is multiplied.
#pragma unroll
        for (int pair = step & ~1; pair < CHUNK / 16; pair += 2) {
            multiply_columns<CHUNK>(w, a, t_high, t_high + PRODUCT_PLANE, lane, pair, step);
        }
    }
#pragma unroll
    for (int step = 0; step < CHUNK / 16; ++step) {
        Left a;
        left_from_accumulators(a, w[2 * step], w[2 * step + 1]);
        // Tiles above the diagonal are zeros: one pair of them at most is multiplied.
#pragma unroll
        for (int pair = step & ~1; pair < CHUNK / 16; pair += 2) {
            multiply_columns<CHUNK>(o, a, p_high, p_high + PRODUCT_PLANE, lane, pair, step);
        }
    }
    out += token * out_stride + column;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int t = n * 8 + token + (e & 1);
            if (t < count) out[(e & 1) * out_stride + (e >> 1) * 8] = o[n][e];
        }
        out += 8 * out_stride;
    }

    const float chunk_decay = decay[CHUNK - 1];
#pragma unroll
    for (int n = 0; n < DK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] *= chunk_decay;
    }
#pragma unroll
    for (int step = 0; step < CHUNK / 16; ++step) {
#pragma unroll
        for (int n = 2 * step; n < 2 * step + 2; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) w[n][e] *= remaining[n * 8 + token + (e & 1)];
        }
        Left a;
        left_from_accumulators(a, w[2 * step], w[2 * step + 1]);
#pragma unroll
        for (int pair = 0; pair < DK / 16; pair += 2) {
            // The only pair of a key head of 16 is its own neighbour; the spare tiles are waste.
            constexpr int LAST = DK / 16 - 1;
            float spare[2][4] = {};
            RightPair b0, b1;
            load_right_transposed<DK>(b0, k_high, k_low, lane, pair, step);
            load_right_transposed<DK>(b1, k_high, k_low, lane, min(pair + 1, LAST), step);
            float(&c2)[4] = LAST > 0 ? s[(2 * pair + 2) % (DK / 8)] : spare[0];
            float(&c3)[4] = LAST > 0 ? s[(2 * pair + 3) % (DK / 8)] : spare[1];
            multiply(s[2 * pair], s[2 * pair + 1], c2, c3, a, b0, a, b1);
        }
    }
}

template <int DK, int STAGES>
INLINE void gated_delta_rule_scan(const DeltaRows& rows, float* state,
                                  i64 state_stride, const int* sequences,
                                  const DeltaScratch& scratch, float* out,
                                  i64 out_stride, int row_count, bool modulo) {
    using Stage = ChunkStage<DK>;
    extern __shared__ __align__(1024) u8 shared[];
    wait_for_previous();
    start_next();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int head = blockIdx.y, value_dim = rows.value_dim;
    const int first_column = (blockIdx.x * warps + warp) * 16;
    const bool in_range = first_column < value_dim;
    if (blockIdx.z == gridDim.z - 1 && in_range && lane < 16) {
        float* target = out + head * value_dim + first_column + lane;
        for (int r = first_padded_row(sequences, gridDim.z); r < row_count; ++r) {
            target[r * out_stride] = 0.0f;
        }
    }
    const Sequence sequence = load_sequence(sequences, blockIdx.z);
    if (sequence.rows <= 0) return;
    i64 chunk = 0;
    for (int before = 0; before < blockIdx.z; ++before) {
        chunk += (max(load_sequence(sequences, before).rows, 0) + CHUNK - 1) / CHUNK;
    }
    const int chunk_count = (sequence.rows + CHUNK - 1) / CHUNK;
    const int key = key_head(rows, head, modulo);
    Stage::copy(shared, scratch, rows, chunk, key, head);

    // Value s[n][e] belongs to key dimension 8 n + 2 (lane % 4) + e % 2 and value column
    // lane / 4 + 8 (e / 2) of the warp.
    float s[DK / 8][4];
    float* const kept = state + sequence.slot * state_stride + (i64)head * DK * value_dim +
                        2 * (lane & 3) * value_dim + first_column + lane / 4;
    const bool has_state = sequence.slot >= 0 && !sequence.fresh() && in_range;
#pragma unroll
    for (int n = 0; n < DK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            s[n][e] = has_state ? kept[(n * 8 + (e & 1)) * value_dim + (e >> 1) * 8] : 0.0f;
        }
    }
    const i64 first_value = 2 * rows.key_heads * DK + (i64)head * value_dim + first_column;
    for (int i = 0; i < chunk_count; ++i) {
        const u8* stage = shared + i % STAGES * Stage::BYTES;
        cp_async_wait<0>();
        __syncthreads();
        if (STAGES > 1 && i + 1 < chunk_count) {
            // That stage was last read before the barrier above.
            Stage::copy(shared + (i + 1) % STAGES * Stage::BYTES, scratch, rows, chunk + i + 1, key,
                        head);
        }
        const i64 row = sequence.first + (i64)i * CHUNK;
        scan_chunk<DK>(s, stage, rows.qkv + row * rows.qkv_stride + first_value, rows.qkv_stride,
                       out + row * out_stride + head * value_dim + first_column, out_stride,
                       in_range ? min(CHUNK, sequence.rows - i * CHUNK) : 0);
        if (STAGES == 1 && i + 1 < chunk_count) {
            __syncthreads();
            Stage::copy(shared, scratch, rows, chunk + i + 1, key, head);
        }
    }
    if (sequence.slot < 0 || !in_range) return;
#pragma unroll
    for (int n = 0; n < DK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            kept[(n * 8 + (e & 1)) * value_dim + (e >> 1) * 8] = s[n][e];
        }
    }
}

#define SCAN(DK, STAGES)                                                                     \
    KERNEL __launch_bounds__(128, 1) gated_delta_rule_scan_##DK##_##STAGES(                  \
        const float* qkv, i64 qkv_stride, const float* ba, i64 ba_stride,                    \
        const float* head_constants, float* state, i64 state_stride, const int* sequences,   \
        u8* keys, u8* products, float* gates, float* out, i64 out_stride, int rows,          \
        int key_heads, int value_heads, int value_dim, u32 modulo) {                         \
        const DeltaRows delta{qkv,       qkv_stride,  ba,       ba_stride, head_constants,   \
                              key_heads, value_heads, value_dim};                            \
        gated_delta_rule_scan<DK, STAGES>(delta, state, state_stride, sequences,             \
                                          DeltaScratch{keys, products, gates}, out,          \
                                          out_stride, rows, modulo != 0);                    \
    }
SCAN(16, 2)
SCAN(32, 2)
// Two stages where they fit the shared memory of a block.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
SCAN(64, 2)
SCAN(128, 2)
#else
SCAN(64, 1)
SCAN(128, 1)
#endif
