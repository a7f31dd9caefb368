// gated_delta_rule_prepare: what the chunks of a pass need that does not depend on the state.
//
// math    k / |k|, q / (|q| sqrt(DK)); A, T, P, e^G and e^{G_L - G} of gated_delta_rule_chunked.cuh.
// shapes  qkv, ba, head_constants, sequences: as gated_delta_rule_recurrent; keys, products, gates: the
//         scratch of gated_delta_rule_chunked.cuh.
// launch  grid (ceil(R / 64) + S, key_heads), 128 threads; a block makes the planes of one chunk of
//         a key head, then T, P and gates of each of its value heads; a warp owns 16 rows of the
//         products. Dynamic shared memory: the larger of 512 DK and 34,816 bytes.
// bytes   8 DK read and 8 DK written per token and key head, 512 written per token and value head.
// limits  DK 16, 32, 64 or 128; scratch 16-byte aligned.
// numerics as gated_delta_rule_chunked.cuh.
#include "gated_delta_rule_chunked.cuh"

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
INLINE void gated_delta_rule_prepare(const DeltaRows& rows, const int* sequences,
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

#define PREPARE(DK)                                                                          \
    KERNEL __launch_bounds__(32 * PREPARE_WARPS) gated_delta_rule_prepare_##DK(              \
        const float* qkv, i64 qkv_stride, const float* ba, i64 ba_stride,                    \
        const float* head_constants, const int* sequences, int sequence_count, u8* keys,     \
        u8* products, float* gates, int key_heads, int value_heads, int value_dim,           \
        u32 modulo) {                                                                        \
        const DeltaRows delta{qkv,       qkv_stride,  ba,       ba_stride, head_constants,   \
                              key_heads, value_heads, value_dim};                            \
        gated_delta_rule_prepare<DK>(delta, sequences, sequence_count,                       \
                                     DeltaScratch{keys, products, gates}, modulo != 0);      \
    }
PREPARE(16)
PREPARE(32)
PREPARE(64)
PREPARE(128)
