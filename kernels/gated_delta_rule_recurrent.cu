// gated_delta_rule_recurrent: token by token; decode, verification, any length.
//
// math    per value head and token, with q = l2norm(q) / sqrt(DK), k = l2norm(k),
//         beta = sigmoid(b), g = -exp(A_log) softplus(a + dt_bias) (Yang et al., "Gated Delta
//         Networks", 2024, eq. 10): S <- e^g S; d = beta (v - S^T k); S <- S + k d^T; out = S^T q.
//         Both products are taken from the old state, so that one reduction serves them:
//         S'^T k = e^g (S^T k), out = e^g (S^T q) + (k . q) d.
// shapes  qkv f32 [R, 2 key_heads DK + value_heads DV] = q | k | v; ba f32 [R, 2 value_heads];
//         head_constants f32 [2, value_heads]; state f32 [slots, value_heads, DK, DV], slots
//         state_stride apart; sequences i32 [S, 4]; out f32 [R, value_heads DV]. Rows after the
//         last sequence are padding and receive zeros; a slot of -1 keeps no state.
// launch  grid (ceil(DV / columns), value_heads, S), columns = 8 per warp, 4 warps (2 if DV is 16).
//         A warp owns 8 columns of one head's state, in registers from the first row to the last;
//         a lane DK / 16 rows of 4 columns. Two tokens per warp are normalised at a time while the
//         ones before are used. Shared memory: static, two stages.
// bytes   state read and written once: 8 value_heads DK DV per sequence; rows: 4 (2 DK DV / columns
//         + 2 DV) per head and token, mostly from L2.
// limits  DK 16, 32, 64 or 128; DV a multiple of 8; state 16-byte aligned, its strides multiples of 4.
// numerics f32, fixed order of additions.
#include "gated_delta_rule.cuh"

constexpr int DELTA_COLUMNS = 8;  // of a warp

template <int DK, int WARPS>
struct TokenStage {
    static constexpr int TOKENS = 2 * WARPS;
    float q[TOKENS][DK], k[TOKENS][DK], v[TOKENS][DELTA_COLUMNS * WARPS];
    float decay[TOKENS], beta[TOKENS], kq[TOKENS];
};

// A lane's share of a token before it is normalised.
template <int DK>
struct RawToken {
    static constexpr int N = (DK + 31) / 32;
    float q[N], k[N], v, b, g;

    INLINE void load(const DeltaRows& rows, i64 row, int key_head, int head, int column,
                     bool valid) {
        const int lane = threadIdx.x & 31;
        const float* from = rows.qkv + row * rows.qkv_stride;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int d = lane + 32 * i;
            const bool use = valid && d < DK;
            q[i] = use ? from[key_head * DK + d] : 0.0f;
            k[i] = use ? from[(rows.key_heads + key_head) * DK + d] : 0.0f;
        }
        const int first_value = 2 * rows.key_heads * DK + head * rows.value_dim;
        v = valid && column < rows.value_dim ? from[first_value + column] : 0.0f;
        b = valid ? write_strength(rows, row, head) : 0.0f;
        g = valid ? log_decay(rows, row, head) : 0.0f;
    }
    template <int WARPS>
    INLINE void store(TokenStage<DK, WARPS>& stage, int token) const {
        const int lane = threadIdx.x & 31;
        float qq = 0.0f, kk = 0.0f, kq = 0.0f;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            qq += q[i] * q[i];
            kk += k[i] * k[i];
            kq += k[i] * q[i];
        }
        const float q_factor = inverse_norm(warp_sum(qq)) / sqrtf((float)DK);
        const float k_factor = inverse_norm(warp_sum(kk));
        kq = warp_sum(kq) * q_factor * k_factor;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const int d = lane + 32 * i;
            if (d < DK) {
                stage.q[token][d] = q[i] * q_factor;
                stage.k[token][d] = k[i] * k_factor;
            }
        }
        if (lane < DELTA_COLUMNS * WARPS) stage.v[token][lane] = v;
        if (lane == 0) {
            stage.decay[token] = expf(g);
            stage.beta[token] = b;
            stage.kq[token] = kq;
        }
    }
};

template <int DK, int WARPS>
INLINE void gated_delta_rule_recurrent(const DeltaRows& rows, float* state,
                                       i64 state_stride, const int* sequences,
                                       float* out, i64 out_stride, int row_count,
                                       bool modulo) {
    using Stage = TokenStage<DK, WARPS>;
    constexpr int ROWS = DK / 16;               // of the state, in a lane
    constexpr int VECTOR = ROWS < 4 ? ROWS : 4;  // neighbours among them
    __shared__ Stage stages[2];
    wait_for_previous();
    start_next();

    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y;
    const int block_column = blockIdx.x * DELTA_COLUMNS * WARPS;
    const int column = block_column + warp * DELTA_COLUMNS + (lane & 1) * 4;
    const int row_lane = lane >> 1;
    const bool in_range = column < rows.value_dim;
    const Sequence sequence = load_sequence(sequences, blockIdx.z);
    if (blockIdx.z == gridDim.z - 1 && block_column + lane < rows.value_dim &&
        lane < DELTA_COLUMNS * WARPS) {
        float* target = out + head * rows.value_dim + block_column + lane;
        for (int r = first_padded_row(sequences, gridDim.z) + warp; r < row_count; r += WARPS) {
            target[r * out_stride] = 0.0f;
        }
    }
    if (sequence.rows <= 0) return;

    // Row i * 16 * VECTOR + row_lane * VECTOR + e of the state is s[i * VECTOR + e].
    float s[ROWS][4];
    const i64 head_values = (i64)DK * rows.value_dim;
    float* kept = state + sequence.slot * state_stride + head * head_values + column;
    const bool has_state = sequence.slot >= 0 && !sequence.fresh() && in_range;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int r = (i / VECTOR * 16 + row_lane) * VECTOR + i % VECTOR;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (has_state) value = *reinterpret_cast<const float4*>(kept + r * rows.value_dim);
        s[i][0] = value.x;
        s[i][1] = value.y;
        s[i][2] = value.z;
        s[i][3] = value.w;
    }

    const int key = key_head(rows, head, modulo);
    RawToken<DK> raw[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int token = 2 * warp + i;
        raw[i].load(rows, sequence.first + token, key, head, block_column + lane,
                    token < sequence.rows);
        raw[i].store(stages[0], token);
    }
    __syncthreads();

    const int own = (lane >> 2) & 3;  // the column whose sums end in this lane
    for (int first = 0; first < sequence.rows; first += Stage::TOKENS) {
        const Stage& stage = stages[first / Stage::TOKENS & 1];
        const int next = first + Stage::TOKENS;
        if (next < sequence.rows) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int token = next + 2 * warp + i;
                raw[i].load(rows, sequence.first + token, key, head, block_column + lane,
                            token < sequence.rows);
            }
        }
        const int count = min(Stage::TOKENS, sequence.rows - first);
        for (int t = 0; t < count; ++t) {
            const float decay = stage.decay[t];
            float k[ROWS], sums[2][4];
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[0][c] = sums[1][c] = 0.0f;
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const int r = (i / VECTOR * 16 + row_lane) * VECTOR + i % VECTOR;
                k[i] = stage.k[t][r];
                const float q = stage.q[t][r];
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    sums[0][c] += s[i][c] * k[i];
                    sums[1][c] += s[i][c] * q;
                }
            }
            // Eight sums over the 16 lanes of equal parity; every exchange halves what is left,
            // so that lane bit 4 ends with S^T k or S^T q and bits 3, 2 name the column.
            float four[4], two[2];
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float send = lane & 16 ? sums[0][c] : sums[1][c];
                const float keep = lane & 16 ? sums[1][c] : sums[0][c];
                four[c] = keep + __shfl_xor_sync(FULL, send, 16);
            }
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const float send = lane & 8 ? four[c] : four[c + 2];
                const float keep = lane & 8 ? four[c + 2] : four[c];
                two[c] = keep + __shfl_xor_sync(FULL, send, 8);
            }
            const float send = lane & 4 ? two[0] : two[1];
            float sum = (lane & 4 ? two[1] : two[0]) + __shfl_xor_sync(FULL, send, 4);
            sum += __shfl_xor_sync(FULL, sum, 2);

            const float v = stage.v[t][warp * DELTA_COLUMNS + (lane & 1) * 4 + own];
            const float delta = stage.beta[t] * (v - decay * sum);
            float d[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) d[c] = __shfl_sync(FULL, delta, (lane & 1) + 4 * c);
            const float own_delta = __shfl_xor_sync(FULL, delta, 16);
            if ((lane & 18) == 16 && in_range) {
                out[(sequence.first + first + t) * out_stride + head * rows.value_dim + column +
                    own] = decay * sum + stage.kq[t] * own_delta;
            }
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
#pragma unroll
                for (int c = 0; c < 4; ++c) s[i][c] = decay * s[i][c] + k[i] * d[c];
            }
        }
        if (next < sequence.rows) {
            Stage& other = stages[next / Stage::TOKENS & 1];
#pragma unroll
            for (int i = 0; i < 2; ++i) raw[i].store(other, 2 * warp + i);
        }
        __syncthreads();
    }

    if (sequence.slot < 0 || !in_range) return;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const int r = (i / VECTOR * 16 + row_lane) * VECTOR + i % VECTOR;
        *reinterpret_cast<float4*>(kept + r * rows.value_dim) =
            make_float4(s[i][0], s[i][1], s[i][2], s[i][3]);
    }
}

#define RECURRENT(DK, WARPS)                                                                     \
    KERNEL __launch_bounds__(32 * WARPS, 4) gated_delta_rule_recurrent_##DK##_##WARPS(              \
        const float* qkv, i64 qkv_stride, const float* ba, i64 ba_stride,                        \
        const float* head_constants, float* state, i64 state_stride, const int* sequences,       \
        float* out, i64 out_stride, int rows, int key_heads, int value_heads, int value_dim,     \
        u32 modulo) {                                                                            \
        const DeltaRows delta{qkv,       qkv_stride,  ba,       ba_stride, head_constants,       \
                              key_heads, value_heads, value_dim};                                \
        gated_delta_rule_recurrent<DK, WARPS>(delta, state, state_stride, sequences, out,        \
                                              out_stride, rows, modulo != 0);                    \
    }
RECURRENT(16, 2)
RECURRENT(32, 2)
RECURRENT(64, 2)
RECURRENT(128, 2)
RECURRENT(16, 4)
RECURRENT(32, 4)
RECURRENT(64, 4)
RECURRENT(128, 4)
