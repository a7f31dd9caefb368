// causal_conv1d
//
// math    out_t[c] = silu(sum_j w[c, j] x_{t-K+1+j}[c]) per sequence; rows before the pass come from
//         the state, or are zero for a sequence that starts here. Afterwards the state holds the
//         last K - 1 raw rows.
// shapes  x, out f32 [R, C], rows x_stride, out_stride apart; weight f32 [C, K], oldest tap first;
//         state f32 [slots, K - 1, C], slots state_stride apart; sequences i32 [S, 4]. Rows after
//         the last sequence are padding and receive zeros; a slot of -1 keeps no state.
// launch  grid (ceil(C / 128), ceil(R / 16) + S), 128 threads: a block owns 128 channels of up to 16
//         rows of one sequence, a thread one channel. The first piece of a sequence alone touches
//         its state: it reads it before it writes, and the other pieces reach back into x.
// bytes   4 C (2 R + 3 R (K - 1) / 16 from cache + K + 2 S (K - 1)).
// limits  2 <= K <= 8.
// numerics f32; taps are added oldest first.
#include "common.cuh"
#include "sequences.cuh"

constexpr int CONV_ROWS = 16;

template <int K>
INLINE void causal_conv1d(const float* x, i64 x_stride,
                          const float* weight, float* state,
                          i64 state_stride, const int* sequences, int sequence_count,
                          float* out, i64 out_stride, int rows, int channels) {
    static_assert(K - 1 <= CONV_ROWS, "a piece must hold the window of the next");
    wait_for_previous();
    start_next();
    const int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= channels) return;
    Piece piece;
    if (!find_piece(sequences, sequence_count, 1, CONV_ROWS, 0, blockIdx.y, piece)) {
        if (blockIdx.y != gridDim.y - 1) return;
        for (int row = first_padded_row(sequences, sequence_count); row < rows; ++row) {
            out[row * out_stride + channel] = 0.0f;
        }
        return;
    }
    const Sequence sequence = piece.sequence;
    const int first = piece.index * CONV_ROWS;
    const int count = min(CONV_ROWS, sequence.rows - first);
    const float* source = x + sequence.first * x_stride + channel;

    float taps[K], value[K - 1 + CONV_ROWS];
#pragma unroll
    for (int j = 0; j < K; ++j) taps[j] = weight[(i64)channel * K + j];
#pragma unroll
    for (int i = 0; i < CONV_ROWS; ++i) {
        value[K - 1 + i] = i < count ? source[(first + i) * x_stride] : 0.0f;
    }
    if (piece.index > 0) {
#pragma unroll
        for (int j = 0; j < K - 1; ++j) value[j] = source[(first + j - (K - 1)) * x_stride];
    } else {
        float* kept = state + sequence.slot * state_stride + channel;
        const bool has_state = sequence.slot >= 0 && !sequence.fresh();
#pragma unroll
        for (int j = 0; j < K - 1; ++j) value[j] = has_state ? kept[(i64)j * channels] : 0.0f;
        if (sequence.slot >= 0) {
#pragma unroll
            for (int j = 0; j < K - 1; ++j) {
                const int row = sequence.rows - (K - 1) + j;
                float next = 0.0f;
                if (row >= 0) {
                    next = source[row * x_stride];
                } else if (has_state) {
                    // Fewer rows than the window: the old state moves up by `rows`, which is at
                    // least 1, so that what is read here is not yet overwritten.
                    next = kept[(i64)(j + sequence.rows) * channels];
                }
                kept[(i64)j * channels] = next;
            }
        }
    }
    float* target = out + (sequence.first + first) * out_stride + channel;
#pragma unroll
    for (int i = 0; i < CONV_ROWS; ++i) {
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < K; ++j) sum += taps[j] * value[i + j];
        if (i < count) target[i * out_stride] = silu(sum);
    }
}

#define CONV(K)                                                                                 \
    KERNEL __launch_bounds__(128, 4) causal_conv1d_##K(                                            \
        const float* x, i64 x_stride, const float* weight, float* state, i64 state_stride,      \
        const int* sequences, int sequence_count, float* out, i64 out_stride, int rows,         \
        int channels) {                                                                         \
        causal_conv1d<K>(x, x_stride, weight, state, state_stride, sequences, sequence_count,   \
                         out, out_stride, rows, channels);                                      \
    }
CONV(2)
CONV(3)
CONV(4)
CONV(5)
CONV(6)
CONV(7)
CONV(8)
