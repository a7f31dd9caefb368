// gated_delta_rule_chunked: prompts, 64 tokens at a time on tensor cores.
//
// math    Equal to gated_delta_rule_recurrent up to rounding (Yang et al., "Gated Delta Networks",
//         2024, section 3.3). Per chunk with rows q_i, k_i, v_i, G_i = sum_{j<=i} g_j and
//         D_ij = e^{G_i - G_j} for j <= i, else 0:
//           A = strictly lower part of (beta_i k_i . k_j D_ij),  T = (I + A)^-1 diag(beta),
//           P = (q_i . k_j D_ij);
//           V' = T (V - diag(e^G) K S),  out = diag(e^G) Q S + P V',
//           S <- e^{G_L} S + (diag(e^{G_L - G}) K)^T V'.
//         All exponents are <= 0. |T_ij| <= 1: it is a product of contractions.
// shapes  qkv, ba, head_constants, state, sequences, out: as gated_delta_rule_recurrent. Scratch, for
//         chunk c of at most N = ceil(R / 64) + S, bf16 planes in the order of shared memory:
//         keys [N, key_heads, 4, 64, DK] = k high, k low, q high, q low, normalised, q scaled;
//         products [N, value_heads, 4, 64, 64] = T high, T low, P high, P low;
//         gates f32 [N, value_heads, 2, 64] = e^G, e^{G_L - G}. A short last chunk is filled up with
//         zero rows, beta 0 and g 0, which change nothing.
// launch  prepare: grid (N, key_heads), 128 threads; a block makes the planes of a key head's chunk,
//         then T, P and gates of each of its value heads; a warp owns 16 rows of the products.
//         scan: grid (ceil(DV / (16 WARPS)), value_heads, S); a warp owns 16 value columns of one
//         head from the first chunk to the last, the transposed state as accumulators (M = value
//         columns, N = key dimensions), so that every left operand is made from its registers and
//         warps share only what they read. STAGES chunks are in shared memory, copied ahead.
// bytes   prepare: 8 DK per token and key head read, 8 DK written, 512 per token and value head
//         written; scan reads these once per 16 WARPS value columns, and 8 DV per token and head.
// limits  DK 16, 32, 64 or 128; DV a multiple of 16; scratch 16-byte aligned.
// numerics products of f32 values as high + low bf16: three products, f32 accumulators, relative
//         error near 2^-17; norms, gates, inverse and state in f32; fixed order of additions.
#include "gated_delta_rule.cuh"

constexpr int CHUNK = 64;

// Byte offset of 16-byte piece `piece` of row `row` in a plane [rows][COLUMNS] of bf16; the
// exclusive or spreads the rows of a matrix load over the banks.
template <int COLUMNS>
INLINE int plane_offset(int row, int piece) {
    constexpr int PIECES = COLUMNS / 8;
    const int turn = PIECES >= 8 ? row & 7 : row * PIECES / 8 & (PIECES - 1);
    return row * (COLUMNS * 2) + ((piece ^ turn) << 4);
}

// Two values as bf16 and what is missing to them as bf16.
INLINE void split_pair(float x, float y, u32& high, u32& low) {
    high = pack_bf16(x, y);
    const float2 kept = unpack_bf16(high);
    low = pack_bf16(x - kept.x, y - kept.y);
}

// Right operands for two neighbouring column tiles of eight, high and low.
struct RightPair {
    u32 high[4], low[4];
};
// From planes [n][k], rows n = 16 pair.., columns k = 16 step..
template <int COLUMNS>
INLINE void load_right(RightPair& b, const u8* high, const u8* low, int lane, int pair,
                       int step) {
    const int row = pair * 16 + (lane >> 4) * 8 + (lane & 7);
    const int offset = plane_offset<COLUMNS>(row, 2 * step + ((lane >> 3) & 1));
    ldmatrix_x4(b.high, high + offset);
    ldmatrix_x4(b.low, low + offset);
}
// From planes [k][n].
template <int COLUMNS>
INLINE void load_right_transposed(RightPair& b, const u8* high, const u8* low, int lane, int pair,
                       int step) {
    const int row = step * 16 + ((lane >> 3) & 1) * 8 + (lane & 7);
    const int offset = plane_offset<COLUMNS>(row, 2 * pair + (lane >> 4));
    ldmatrix_x4_trans(b.high, high + offset);
    ldmatrix_x4_trans(b.low, low + offset);
}

struct Left {
    u32 high[4], low[4];
};
// Two neighbouring accumulator tiles as a left operand: their columns become its k.
INLINE void left_from_accumulators(Left& a, const float (&c0)[4], const float (&c1)[4]) {
    split_pair(c0[0], c0[1], a.high[0], a.low[0]);
    split_pair(c0[2], c0[3], a.high[1], a.low[1]);
    split_pair(c1[0], c1[1], a.high[2], a.low[2]);
    split_pair(c1[2], c1[3], a.high[3], a.low[3]);
}

// c += a b for four tiles, without the products of two low parts: [0], [1] take `a0` and `b0`,
// [2], [3] take `a1` and `b1`. A product waits long for the one before it, so the four take turns.
INLINE void multiply(float (&c0)[4], float (&c1)[4], float (&c2)[4], float (&c3)[4], const Left& a0,
                     const RightPair& b0, const Left& a1, const RightPair& b1) {
    const u32 high[4][2] = {{b0.high[0], b0.high[1]}, {b0.high[2], b0.high[3]},
                            {b1.high[0], b1.high[1]}, {b1.high[2], b1.high[3]}};
    const u32 low[4][2] = {{b0.low[0], b0.low[1]}, {b0.low[2], b0.low[3]},
                           {b1.low[0], b1.low[1]}, {b1.low[2], b1.low[3]}};
    mma_bf16(c0, a0.high, high[0]);
    mma_bf16(c1, a0.high, high[1]);
    mma_bf16(c2, a1.high, high[2]);
    mma_bf16(c3, a1.high, high[3]);
    mma_bf16(c0, a0.high, low[0]);
    mma_bf16(c1, a0.high, low[1]);
    mma_bf16(c2, a1.high, low[2]);
    mma_bf16(c3, a1.high, low[3]);
    mma_bf16(c0, a0.low, high[0]);
    mma_bf16(c1, a0.low, high[1]);
    mma_bf16(c2, a1.low, high[2]);
    mma_bf16(c3, a1.low, high[3]);
}
// c += a b for the column tiles [2 pair, 2 pair + 4), b in planes [n][k].
template <int COLUMNS, int N>
INLINE void multiply_columns(float (&c)[N][4], const Left& a, const u8* high, const u8* low,
                             int lane, int pair, int step) {
    RightPair b0, b1;
    load_right<COLUMNS>(b0, high, low, lane, pair, step);
    load_right<COLUMNS>(b1, high, low, lane, pair + 1, step);
    multiply(c[2 * pair], c[2 * pair + 1], c[2 * pair + 2], c[2 * pair + 3], a, b0, a, b1);
}

// Scratch of the pass and its addresses.
struct DeltaScratch {
    u8* keys;
    u8* products;
    float* gates;
};
constexpr int PRODUCT_PLANE = CHUNK * CHUNK * 2;
template <int DK>
INLINE u8* key_planes(const DeltaScratch& scratch, i64 chunk, int key_heads, int head) {
    return scratch.keys + (chunk * key_heads + head) * (4 * CHUNK * DK * 2);
}
INLINE u8* product_planes(const DeltaScratch& scratch, i64 chunk, int value_heads, int head) {
    return scratch.products + (chunk * value_heads + head) * (4 * PRODUCT_PLANE);
}
INLINE float* gate_planes(const DeltaScratch& scratch, i64 chunk, int value_heads, int head) {
    return scratch.gates + (chunk * value_heads + head) * (2 * CHUNK);
}

// ---- prepare ------------------------------------------------------------------------------------

constexpr int PREPARE_WARPS = 4;
constexpr int SQUARE_STRIDE = CHUNK + 4;  // of f32 squares in shared memory

// Normalises the chunk's rows of one key head into planes k high, k low, q high, q low.
template <int DK>
INLINE void store_key_planes(u8* planes, const DeltaRows& rows, i64 first_row, int count, int head) {
    constexpr int PLANE = CHUNK * DK * 2;
    constexpr int PAIRS = (DK / 2 + 31) / 32;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll 2
    for (int i = 0; i < 2 * CHUNK / PREPARE_WARPS; ++i) {
        const int index = i * PREPARE_WARPS + warp, row = index >> 1;
        const bool is_query = index & 1;
        const float* from = rows.qkv + (first_row + row) * rows.qkv_stride +
                            ((is_query ? 0 : rows.key_heads) + head) * DK;
        float x[PAIRS], y[PAIRS], square = 0.0f;
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            const int d = 2 * (lane + 32 * p);
            const bool use = row < count && d < DK;
            x[p] = use ? from[d] : 0.0f;
            y[p] = use ? from[d + 1] : 0.0f;
            square += x[p] * x[p] + y[p] * y[p];
        }
        float factor = inverse_norm(warp_sum(square));
        if (is_query) factor /= sqrtf((float)DK);
        u8* plane = planes + (is_query ? 2 * PLANE : 0);
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            const int pair = lane + 32 * p;
            if (2 * pair >= DK) continue;
            u32 high, low;
            split_pair(x[p] * factor, y[p] * factor, high, low);
            const int offset = plane_offset<DK>(row, pair / 4) + pair % 4 * 4;
            *reinterpret_cast<u32*>(plane + offset) = high;
            *reinterpret_cast<u32*>(plane + PLANE + offset) = low;
        }
    }
}

// Rows of 16 of the lower triangles of K K^T and Q K^T: this warp's accumulators.
template <int DK>
INLINE void key_products(float (&kk)[CHUNK / 8][4], float (&qk)[CHUNK / 8][4], const u8* planes) {
    constexpr int PLANE = CHUNK * DK * 2;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const u8* k_high = planes;
    const u8* k_low = planes + PLANE;
#pragma unroll
    for (int n = 0; n < CHUNK / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) kk[n][e] = qk[n][e] = 0.0f;
    }
#pragma unroll 2
    for (int step = 0; step < DK / 16; ++step) {
        const int offset = plane_offset<DK>(warp * 16 + (lane & 15), 2 * step + (lane >> 4));
        Left k, q;
        ldmatrix_x4(k.high, k_high + offset);
        ldmatrix_x4(k.low, k_low + offset);
        ldmatrix_x4(q.high, planes + 2 * PLANE + offset);
        ldmatrix_x4(q.low, planes + 3 * PLANE + offset);
#pragma unroll
        for (int pair = 0; pair < CHUNK / 16; ++pair) {
            // Above the diagonal nothing is used.
            if (pair > warp) continue;
            RightPair b;
            load_right<DK>(b, k_high, k_low, lane, pair, step);
            multiply(kk[2 * pair], kk[2 * pair + 1], qk[2 * pair], qk[2 * pair + 1], k, b, q, b);
        }
    }
}

// target[i][j] = sign * sum_k left[i][k] right[k][j] for an N x N square, eight columns a thread.
template <int N, int SQUARES>
INLINE void multiply_squares(float* target, const float* left, const float* right, int square_step,
                             float sign) {
    constexpr int COLUMNS = N * N * SQUARES / (32 * PREPARE_WARPS);
    constexpr int PER_ROW = N / COLUMNS;
    const int square = threadIdx.x / (N * PER_ROW);
    const int row = threadIdx.x / PER_ROW % N, column = threadIdx.x % PER_ROW * COLUMNS;
    const int origin = square * square_step;
    float sum[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sum[c] = 0.0f;
#pragma unroll 4
    for (int k = 0; k < N; ++k) {
        const float a = left[origin + row * SQUARE_STRIDE + k];
        const float* b = right + origin + k * SQUARE_STRIDE + column;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) sum[c] += a * b[c];
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        target[origin + row * SQUARE_STRIDE + column + c] = sign * sum[c];
    }
}

// inverse = (I + a)^-1, a strictly lower triangular. Blocks of 16 by substitution, then twice
// [[X, 0], [B, Y]]^-1 = [[X^-1, 0], [-Y^-1 B X^-1, Y^-1]]. What lies above the diagonal of
// `inverse` afterwards is waste.
INLINE void invert(float* inverse, const float* a) {
    constexpr int W = SQUARE_STRIDE;
    if (threadIdx.x < CHUNK) {
        const int column = threadIdx.x & 15, corner = (threadIdx.x & ~15) * (W + 1);
        float x[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
            for (int m = 0; m < i; ++m) sum -= a[corner + i * W + m] * x[m];
            x[i] = sum;
            inverse[corner + i * W + column] = sum;
        }
    }
    __syncthreads();
    // The upper right squares hold B X^-1.
    constexpr int LOWER = 16 * W, UPPER = 16, NEXT = 16 * (W + 1);
    multiply_squares<16, 2>(inverse + UPPER, a + LOWER, inverse, 2 * NEXT, 1.0f);
    __syncthreads();
    multiply_squares<16, 2>(inverse + LOWER, inverse + NEXT, inverse + UPPER, 2 * NEXT, -1.0f);
    __syncthreads();
    // They must be zero where they take part in the larger squares.
    for (int i = threadIdx.x; i < 2 * 16 * 16; i += 32 * PREPARE_WARPS) {
        inverse[(i >> 8) * 2 * NEXT + UPPER + (i >> 4 & 15) * W + (i & 15)] = 0.0f;
    }
    __syncthreads();
    multiply_squares<32, 1>(inverse + 2 * UPPER, a + 2 * LOWER, inverse, 0, 1.0f);
    __syncthreads();
    multiply_squares<32, 1>(inverse + 2 * LOWER, inverse + 2 * NEXT, inverse + 2 * UPPER, 0, -1.0f);
    __syncthreads();
}

template <int DK>
INLINE void gated_delta_rule_prepare(const DeltaRows& rows, const int* __restrict__ sequences,
                                     int sequence_count, const DeltaScratch& scratch,
                                     bool modulo) {
    constexpr int PLANES = 4 * CHUNK * DK * 2;
    extern __shared__ __align__(1024) u8 shared[];
    __shared__ float total[CHUNK], beta[CHUNK];
    wait_for_previous();
    start_next();
    Piece piece;
    if (!find_piece(sequences, sequence_count, 1, CHUNK, 0, blockIdx.x, piece)) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y;
    const i64 first_row = piece.sequence.first + piece.index * CHUNK;
    const int count = min(CHUNK, piece.sequence.rows - piece.index * CHUNK);

    store_key_planes<DK>(shared, rows, first_row, count, head);
    __syncthreads();
    float kk[CHUNK / 8][4], qk[CHUNK / 8][4];
    key_products<DK>(kk, qk, shared);
    uint4* planes = reinterpret_cast<uint4*>(
        key_planes<DK>(scratch, blockIdx.x, rows.key_heads, head));
    for (int i = threadIdx.x; i < PLANES / 16; i += 32 * PREPARE_WARPS) {
        planes[i] = reinterpret_cast<const uint4*>(shared)[i];
    }

    // The planes are done with: the squares take their place.
    float* const a = reinterpret_cast<float*>(shared);
    float* const inverse = a + CHUNK * SQUARE_STRIDE;
    const int ratio = rows.value_heads / rows.key_heads;
    for (int i = 0; i < ratio; ++i) {
        const int value = value_head(rows, head, i, modulo);
        __syncthreads();
        if (warp == 0) {
            // Two tokens a lane; the running sum is a fixed tree.
            const int t = 2 * lane;
            const float g0 = t < count ? log_decay(rows, first_row + t, value) : 0.0f;
            const float g1 = t + 1 < count ? log_decay(rows, first_row + t + 1, value) : 0.0f;
            float sum = g0 + g1;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                const float before = __shfl_up_sync(FULL, sum, step);
                if (lane >= step) sum += before;
            }
            const float before = __shfl_up_sync(FULL, sum, 1);
            const float start = lane > 0 ? before : 0.0f;
            total[t] = start + g0;
            total[t + 1] = sum;
            beta[t] = t < count ? write_strength(rows, first_row + t, value) : 0.0f;
            beta[t + 1] = t + 1 < count ? write_strength(rows, first_row + t + 1, value) : 0.0f;
        }
        __syncthreads();
        u8* const products = product_planes(scratch, blockIdx.x, rows.value_heads, value);
        float* const gates = gate_planes(scratch, blockIdx.x, rows.value_heads, value);
        if (threadIdx.x < CHUNK) {
            gates[threadIdx.x] = expf(total[threadIdx.x]);
            gates[CHUNK + threadIdx.x] = expf(total[CHUNK - 1] - total[threadIdx.x]);
        }
#pragma unroll
        for (int n = 0; n < CHUNK / 8; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = warp * 16 + half * 8 + lane / 4, column = n * 8 + 2 * (lane & 3);
                float p[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int j = column + e;
                    // Masked before the exponential: above the diagonal it overflows.
                    const float decay = j <= row ? expf(total[row] - total[j]) : 0.0f;
                    p[e] = qk[n][2 * half + e] * decay;
                    a[row * SQUARE_STRIDE + j] =
                        j < row ? beta[row] * kk[n][2 * half + e] * decay : 0.0f;
                }
                u32 high, low;
                split_pair(p[0], p[1], high, low);
                const int offset = plane_offset<CHUNK>(row, n) + (lane & 3) * 4;
                *reinterpret_cast<u32*>(products + 2 * PRODUCT_PLANE + offset) = high;
                *reinterpret_cast<u32*>(products + 3 * PRODUCT_PLANE + offset) = low;
            }
        }
        __syncthreads();
        invert(inverse, a);
        for (int pair = threadIdx.x; pair < CHUNK * CHUNK / 2; pair += 32 * PREPARE_WARPS) {
            const int row = pair / (CHUNK / 2), column = pair % (CHUNK / 2) * 2;
            const float* from = inverse + row * SQUARE_STRIDE + column;
            const float x = column <= row ? from[0] * beta[column] : 0.0f;
            const float y = column + 1 <= row ? from[1] * beta[column + 1] : 0.0f;
            u32 high, low;
            split_pair(x, y, high, low);
            const int offset = plane_offset<CHUNK>(row, column / 8) + column % 8 * 2;
            *reinterpret_cast<u32*>(products + offset) = high;
            *reinterpret_cast<u32*>(products + PRODUCT_PLANE + offset) = low;
        }
    }
}

// ---- scan ---------------------------------------------------------------------------------------

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
INLINE void gated_delta_rule_scan(const DeltaRows& rows, float* __restrict__ state,
                                  i64 state_stride, const int* __restrict__ sequences,
                                  const DeltaScratch& scratch, float* __restrict__ out,
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

#define DELTA_ROWS                                                                            \
    const DeltaRows delta { qkv, qkv_stride, ba, ba_stride, head_constants, key_heads,        \
                            value_heads, value_dim }
#define CHUNKED(DK)                                                                           \
    KERNEL __launch_bounds__(32 * PREPARE_WARPS) gated_delta_rule_prepare_##DK(               \
        const float* qkv, i64 qkv_stride, const float* ba, i64 ba_stride,                     \
        const float* head_constants, const int* sequences, int sequence_count, u8* keys,      \
        u8* products, float* gates, int key_heads, int value_heads, int value_dim,            \
        u32 modulo) {                                                                         \
        DELTA_ROWS;                                                                           \
        gated_delta_rule_prepare<DK>(delta, sequences, sequence_count,                        \
                                     DeltaScratch{keys, products, gates}, modulo != 0);       \
    }                                                                                         \
    SCAN_##DK
#define SCAN(DK, STAGES)                                                                      \
    KERNEL __launch_bounds__(128, 1) gated_delta_rule_scan_##DK##_##STAGES(                   \
        const float* qkv, i64 qkv_stride, const float* ba, i64 ba_stride,                     \
        const float* head_constants, float* state, i64 state_stride, const int* sequences,    \
        u8* keys, u8* products, float* gates, float* out, i64 out_stride, int rows,           \
        int key_heads, int value_heads, int value_dim, u32 modulo) {                          \
        DELTA_ROWS;                                                                           \
        gated_delta_rule_scan<DK, STAGES>(delta, state, state_stride, sequences,              \
                                          DeltaScratch{keys, products, gates}, out,           \
                                          out_stride, rows, modulo != 0);                     \
    }
// Two stages where they fit the shared memory of a block.
#define SCAN_16 SCAN(16, 2)
#define SCAN_32 SCAN(32, 2)
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
#define SCAN_64 SCAN(64, 2)
#define SCAN_128 SCAN(128, 2)
#else
#define SCAN_64 SCAN(64, 1)
#define SCAN_128 SCAN(128, 1)
#endif
CHUNKED(16)
CHUNKED(32)
CHUNKED(64)
CHUNKED(128)
