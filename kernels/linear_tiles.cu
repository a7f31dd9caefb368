// linear_tiles
// math:     out[r, n] = w_scale[n] x_scale[r] sum_k A[n, k] B[r, k] for many rows r.
// shapes:   A: F16 records [row_tiles, a_steps] of 512 bytes (16 rows by 16 columns, see
//           records.cuh), from a weight or from dequantize; w_scale f32 [row_tiles * 16]. B:
//           [token_tiles, b_steps] of 512 bytes (16 tokens by 16 columns) and x_scale f32 [tokens],
//           from quantize_activations_tiles. out f32 [tokens, rows], row stride out_stride.
// launch:   grid (ceil(tokens / BN), ceil(rows / BM)), block 64 W = W x 2 warps; a warp owns BM / W
//           rows by BN / 2 tokens in registers. Both operands lie in memory as the products want
//           them, so a stage is copied as it is and a lane reads 16 consecutive bytes: no swizzle,
//           no transposition, no bank conflict. Shared: 3 stages of (BM + BN) * 64.
//           Variants BM x BN: 256 x 128 (W = 4), 128 x 128, 64 x 128, 64 x 64 (W = 2).
// bytes:    rows * K * 2 * ceil(tokens / BN) and tokens * K * 2 * ceil(rows / BM), mostly from L2;
//           + tokens * rows * 4.
// limits:   a_steps even, b_steps >= a_steps. Tiles past the end are read from the last one and
//           not stored.
// numerics: f16 operands, exact products, f32 sums in the order of k.
#include "common.cuh"

constexpr int STAGES = 3;
constexpr int STEPS = 2;
constexpr u32 TILE = STEPS * 512;

struct LinearTiles {
    const u8* a;
    const float* w_scale;
    u32 row_tiles, rows, a_steps;
    const u8* b;
    const float* x_scale;
    u32 token_tiles, tokens, b_steps;
    float* out;
    u64 out_stride;
};

// Copies `STEPS` steps of `TILES` tiles; 64 threads share a tile.
template <u32 TILES, u32 THREADS>
INLINE void fetch(u8* to, const u8* from, u32 first, u32 tiles, u32 steps, u32 step) {
#pragma unroll
    for (u32 i = 0; i < TILES; i += THREADS / 64) {
        u32 tile = i + threadIdx.x / 64, byte = threadIdx.x % 64 * 16;
        u64 at = (u64(min(first + tile, tiles - 1)) * steps + step) * 512;
        cp_async16(to + tile * TILE + byte, from + at + byte);
    }
}

template <int MI, int NI>
INLINE void multiply_stage(const u8* a, const u8* b, float (&sum)[MI][2 * NI][4]) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        uint4 left[MI], right[NI];
#pragma unroll
        for (int m = 0; m < MI; m++)
            left[m] = *reinterpret_cast<const uint4*>(a + m * TILE + step * 512);
#pragma unroll
        for (int n = 0; n < NI; n++)
            right[n] = *reinterpret_cast<const uint4*>(b + n * TILE + step * 512);
#pragma unroll
        for (int m = 0; m < MI; m++)
#pragma unroll
            for (int n = 0; n < NI; n++) {
                u32 rows[4] = {left[m].x, left[m].y, left[m].z, left[m].w};
                u32 lower[2] = {right[n].x, right[n].y}, upper[2] = {right[n].z, right[n].w};
                mma_f16(sum[m][2 * n], rows, lower);
                mma_f16(sum[m][2 * n + 1], rows, upper);
            }
    }
}

template <int MI, int NI>
INLINE void store(const LinearTiles& p, u32 row, u32 token, const float (&sum)[MI][2 * NI][4]) {
    u32 lane = threadIdx.x % 32;
    row += lane / 4;
    token += lane % 4 * 2;
    float x_scale[2 * NI][2];
#pragma unroll
    for (int n = 0; n < 2 * NI; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            u32 at = token + n * 8 + j;
            x_scale[n][j] = at < p.tokens ? p.x_scale[at] : 0.0f;
        }
#pragma unroll
    for (int m = 0; m < MI; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 r = row + m * 16 + half * 8;
            if (r >= p.rows) continue;
            float w_scale = p.w_scale[r];
#pragma unroll
            for (int n = 0; n < 2 * NI; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    u32 at = token + n * 8 + j;
                    if (at < p.tokens)
                        p.out[at * p.out_stride + r] =
                            sum[m][n][half * 2 + j] * w_scale * x_scale[n][j];
                }
        }
}

// W x 2 warps; a warp owns MI tiles of 16 rows by NI tiles of 16 tokens.
template <int W, int MI, int NI>
INLINE void linear_tiles(const LinearTiles& p) {
    constexpr u32 A = W * MI, B = 2 * NI;
    extern __shared__ __align__(16) u8 shared[];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 row_tile = blockIdx.y * A, token_tile = blockIdx.x * B;
    auto stage = [&](u32 slot, u32 step) {
        u8* to = shared + slot * (A + B) * TILE;
        if (step < p.a_steps) {
            fetch<A, 64 * W>(to, p.a, row_tile, p.row_tiles, p.a_steps, step);
            fetch<B, 64 * W>(to + A * TILE, p.b, token_tile, p.token_tiles, p.b_steps, step);
        }
        cp_async_commit();
    };
    wait_for_previous();
    start_next();
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++) stage(s, s * STEPS);

    float sum[MI][2 * NI][4] = {};
    u32 slot = 0;
    for (u32 step = 0; step < p.a_steps; step += STEPS) {
        cp_async_wait<STAGES - 2>();
        // Everybody's copies have arrived, and everybody has left the slot that is filled next.
        __syncthreads();
        stage(slot == 0 ? STAGES - 1 : slot - 1, step + (STAGES - 1) * STEPS);
        const u8* own = shared + slot * (A + B) * TILE + lane * 16;
        multiply_stage<MI, NI>(own + warp % W * MI * TILE, own + (A + warp / W * NI) * TILE, sum);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
    store<MI, NI>(p, (row_tile + warp % W * MI) * 16, (token_tile + warp / W * NI) * 16, sum);
}

#define LINEAR_TILES(NAME, W, MI, NI, BLOCKS)                                                      \
    KERNEL __launch_bounds__(64 * W, BLOCKS) linear_tiles_##NAME(                                  \
        const u8* a, const float* w_scale, u32 row_tiles, u32 rows, u32 a_steps, const u8* b,      \
        const float* x_scale, u32 token_tiles, u32 tokens, u32 b_steps, float* out,                \
        u64 out_stride) {                                                                          \
        linear_tiles<W, MI, NI>({a, w_scale, row_tiles, rows, a_steps, b, x_scale, token_tiles,    \
                                 tokens, b_steps, out, out_stride});                               \
    }
LINEAR_TILES(256x128, 4, 4, 4, 1)
LINEAR_TILES(128x128, 2, 4, 4, 2)
LINEAR_TILES(64x128, 2, 2, 4, 3)
LINEAR_TILES(64x64, 2, 2, 2, 4)
