// linear_rows
// math:     out[r, n] = sum_k W[n, k] x[r, k] for few rows r; with experts W = W[ids[r]].
// shapes:   records [experts, tiles, chunks] of BYTES: 16 rows by K columns each, see records.cuh;
//           row_scale f32 [experts, tiles * 16], floats only.
//           x: quants of 64 bytes a row and group of 32 columns (16 for floats), x_scale f32
//           [x_rows, 4, groups] or [x_rows], both from quantize_activations. out f32 [rows of x,
//           rows], row stride out_stride. segments i32 [n, 4] = expert, first, count, 0 and order
//           i32 from moe_group, or null: then block row y takes rows 8 NT y.. of x itself. Entry e
//           of `order` reads row e / share of x and writes row e of out; expert -1 writes zeros.
// launch:   grid (b, ceil(x_rows / (8 NT)) or segments), b <= tiles; block of 32 * warps, a divisor
//           of `classes`. A block takes tiles x, x + b, ..; warp w of a tile the chunks of classes
//           w, w + warps, ..; the sums of the classes meet in shared memory. Each warp copies its
//           records, three ahead and across tiles, into a ring of its own, so nothing but the sum
//           of a tile waits for a barrier.
//           Shared: warps * 4 * BYTES + classes * NT * 8 * 20 * 4.
// bytes:    tiles * chunks * BYTES for each block row + x_rows * K * 2.5 + 4 * x_rows * rows.
// limits:   records 16-byte aligned; groups * 32 >= chunks * K and a multiple of 256; classes <=
//           chunks.
// numerics: activations are 16-bit integers times a scale per 128 (quantised types) or pairs of
//           f16 (floats): off by at most 2^-16 of the largest of 128, 2^-22 for floats. Integer
//           products are exact, scales and sums f32, in the order of linear.cuh.
#pragma once
#include "linear.cuh"

constexpr int STAGES = 4;
// Floats between two columns of a partial sum: 16 rows, padded so that stores meet all banks.
constexpr int COLUMN = 20;

// What a lane reads of the activations: as column g of a product its quants, as columns 2t and
// 2t + 1 of the result their scales.
template <int NT>
struct Columns {
    const u8* quants[NT];
    const float* scales[NT][2];
};

// Adds one record times the activations to `sum`.
template <class T, int NT>
INLINE void add_record(const u8* record, u32 chunk, u32 groups, const Columns<NT>& x,
                       float (&sum)[NT][4]) {
    typedef Format<T> F;
    constexpr int SUBS = F::SUBS;
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int part = 0; part < F::STEPS; part++) {
        Weights<T> w;
        float m[4][2][SUBS];
        Step<T>::codes(record, part, lane, w.a);
        if constexpr (!F::FLOATS) {
#pragma unroll
            for (int i = 0; i < 4; i++) T::scales(record, part * 4 + i, lane >> 2, w.d[i], m[i]);
        }
        u32 step = chunk * F::STEPS + part;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float2 scale = make_float2(1.0f, 1.0f);
            if constexpr (!F::FLOATS)
                scale = make_float2(x.scales[n][0][step], x.scales[n][1][step]);
            if constexpr (F::MIN) {
                float4 sums[2][SUBS];
#pragma unroll
                for (int j = 0; j < 2; j++)
#pragma unroll
                    for (int s = 0; s < SUBS; s++)
                        sums[j][s] = load4(x.scales[n][j] + SUBS * (groups + 4 * step) + 4 * s);
                subtract_minimums<SUBS>(m, sums, sum[n]);
            }
            uint4 b[F::GROUPS];
#pragma unroll
            for (int i = 0; i < F::GROUPS; i++)
                b[i] = *reinterpret_cast<const uint4*>(
                    x.quants[n] + u64(step * F::GROUPS + i) * 64);
            Step<T>::multiply(w, b, scale, sum[n]);
        }
    }
}

template <class T, int NT>
INLINE void write_tile(const Linear& p, const Batch& batch, const float* row_scale, u32 tile,
                       const float* partial) {
    constexpr int SIZE = NT * 8 * COLUMN;
    for (u32 i = threadIdx.x; i < batch.count * 16; i += blockDim.x) {
        u32 column = i >> 4, row = tile * 16 + (i & 15);
        const float* own = partial + column * COLUMN + (i & 15);
        float total = *own;
        for (u32 k = 1; k < p.classes; k++) total = __fadd_rn(total, own[k * SIZE]);
        if (row >= p.rows) continue;
        u32 entry = batch.entry(column);
        if (Format<T>::FLOATS) total *= row_scale[row] * p.x_scale[entry / batch.share];
        p.out[u64(entry) * p.out_stride + row] = total;
    }
}

template <class T, int NT>
INLINE void linear_rows(const Linear& p) {
    extern __shared__ __align__(16) u8 shared[];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    u8* ring = shared + warp * (STAGES * T::BYTES);
    float* partial = reinterpret_cast<float*>(shared + warps * (STAGES * T::BYTES));
    Batch batch = {nullptr, blockIdx.y * (NT * 8), 0, 1};
    i32 expert = 0;
    if (p.segments) {
        wait_for_previous();
        int4 segment = p.segments[blockIdx.y];
        expert = segment.x;
        batch = {p.order, u32(segment.y), u32(segment.z), p.share};
        if (batch.count == 0) return;
        if (expert < 0) {
            for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x)
                for (u32 i = threadIdx.x; i < batch.count * 16; i += blockDim.x) {
                    u32 row = tile * 16 + (i & 15);
                    if (row < p.rows) p.out[u64(batch.entry(i >> 4)) * p.out_stride + row] = 0.0f;
                }
            return;
        }
    } else {
        batch.count = min(u32(NT * 8), p.x_rows - batch.first);
    }
    const u8* records = p.records + u64(expert) * p.tiles * p.chunks * T::BYTES;
    const float* row_scale = p.row_scale + u64(expert) * p.tiles * 16;

    // The records of this warp, across tiles, as one stream of copies.
    u32 next_tile = blockIdx.x, next_class = warp, next_chunk = warp, slot = 0;
    auto fetch = [&](u32 to) {
        if (next_tile < p.tiles) {
            const u8* from = records + (u64(next_tile) * p.chunks + next_chunk) * T::BYTES;
#pragma unroll
            for (u32 i = 0; i < T::BYTES; i += 512)
                if (i + 512 <= T::BYTES || i + lane * 16 < T::BYTES)
                    cp_async16(ring + to * T::BYTES + i + lane * 16, from + i + lane * 16);
            next_chunk += p.classes;
            if (next_chunk >= p.chunks) {
                next_class += warps;
                if (next_class >= p.classes) next_class = warp, next_tile += gridDim.x;
                next_chunk = next_class;
            }
        }
        cp_async_commit();
    };
#pragma unroll
    for (u32 s = 0; s < STAGES - 1; s++) fetch(s);
    wait_for_previous();
    start_next();

    Columns<NT> x;
    u32 g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        x.quants[n] = p.x + u64(batch.entry(n * 8 + g) / batch.share) * p.groups *
                Format<T>::X_BYTES + t * 16;
#pragma unroll
        for (int j = 0; j < 2; j++)
            x.scales[n][j] =
                p.x_scale + u64(batch.entry(n * 8 + 2 * t + j) / batch.share) * p.groups * 4;
    }

    for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        for (u32 k = warp; k < p.classes; k += warps) {
            float sum[NT][4] = {};
            for (u32 chunk = k; chunk < p.chunks; chunk += p.classes) {
                cp_async_wait<STAGES - 2>();
                // Also keeps the copy below from a slot that a lane still reads.
                __syncwarp();
                fetch((slot + STAGES - 1) % STAGES);
                add_record<T, NT>(ring + slot * T::BYTES, chunk, p.groups, x, sum);
                slot = (slot + 1) % STAGES;
            }
            float* own = partial + k * (NT * 8 * COLUMN) + g;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    own[(n * 8 + 2 * t + (e & 1)) * COLUMN + (e >> 1) * 8] = sum[n][e];
        }
        __syncthreads();
        write_tile<T, NT>(p, batch, row_scale, tile, partial);
        __syncthreads();
    }
}

// Two scales a group, or floats: the compiler would spill to fit two blocks of 16 rows in an SM.
#define LINEAR_ROWS_ALONE(TYPE, NT) (NT == 2 && (Format<TYPE>::SUBS == 2 || Format<TYPE>::FLOATS))
#define LINEAR_ROWS(NAME, TYPE, NT)                                                             \
    KERNEL __launch_bounds__(NT == 1 ? 512 : 256, LINEAR_ROWS_ALONE(TYPE, NT) ? 1 : 0)          \
        linear_rows_##NAME##_##NT(LINEAR_PARAMETERS) {                                          \
        linear_rows<TYPE, NT>({LINEAR_ARGUMENTS});                                              \
    }
#define LINEAR_ROWS_ALL(NAME, TYPE) \
    LINEAR_ROWS(NAME, TYPE, 1)      \
    LINEAR_ROWS(NAME, TYPE, 2)      \
    LINEAR_ROWS(NAME, TYPE, 4)
