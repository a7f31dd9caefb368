// The chunked form of the gated delta rule: 64 tokens at a time on tensor cores. Two kernels,
// gated_delta_rule_prepare (all chunks at once) and gated_delta_rule_scan (chunk after chunk).
//
// math    Equal to the recurrence up to rounding (Yang et al., "Gated Delta Networks", 2024, section
//         3.3). Per chunk with rows q_i, k_i, v_i, G_i = sum_{j<=i} g_j and D_ij = e^{G_i - G_j} for
//         j <= i, else 0:
//           A = strictly lower part of (beta_i k_i . k_j D_ij),  T = (I + A)^-1 diag(beta),
//           P = (q_i . k_j D_ij);
//           V' = T (V - diag(e^G) K S),  out = diag(e^G) Q S + P V',
//           S <- e^{G_L} S + (diag(e^{G_L - G}) K)^T V'.
//         All exponents are <= 0. |T_ij| <= 1: it is a product of contractions.
// shapes  Scratch between the two, for chunk c of at most N = ceil(R / 64) + S, bf16 planes in the
//         order of shared memory:
//         keys [N, key_heads, 4, 64, DK] = k high, k low, q high, q low, normalised, q scaled;
//         products [N, value_heads, 4, 64, 64] = T high, T low, P high, P low;
//         gates f32 [N, value_heads, 2, 64] = e^G, e^{G_L - G}. A short last chunk is filled up with
//         zero rows, beta 0 and g 0, which change nothing.
// numerics products of f32 values as high + low bf16: three products, f32 accumulators, relative
//         error near 2^-17; norms, gates, inverse and state in f32; fixed order of additions.
#pragma once
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
