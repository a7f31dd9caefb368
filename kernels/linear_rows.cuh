// linear_rows
// math:     out[r, n] = sum_k W[n, k] x[r, k] for few rows r; with experts W = W[ids[r]].
// shapes:   records [experts, tiles, chunks] of BYTES: 16 rows by K columns each, see records.cuh;
//           row_scale f32 [experts, tiles * 16], floats only.
//           x: quants of 64 bytes a row and group of 32 columns (16 for floats), x_scale f32
//           [x_rows, 4, groups] or [x_rows], both from quantize_activations. out f32 [rows of x,
//           rows], row stride out_stride. segments i32 [n, 4] = expert, first, count, 0 and order
//           i32 from moe_group, or null: then block row y takes rows 8 NT y.. of x itself. Entry e
//           of `order` reads row e / share of x and writes row e of out; expert -1 writes zeros.
// launch:   grid (b, ceil(x_rows / (8 NT)) or segments), b <= tiles; block of 32 * warps, warps <=
//           chunks. A block takes tiles x, x + b, ..; warp w of a tile its chunks w, w + warps, ..;
//           partial sums meet in shared memory. Each warp copies its records, three ahead and
//           across tiles, into a ring of its own, so nothing but the sum of a tile waits for a
//           barrier.
//           Shared: warps * (4 * BYTES + NT * 8 * 20 * 4).
// bytes:    tiles * chunks * BYTES for each block row + x_rows * K * 2.5 + 4 * x_rows * rows.
// limits:   records 16-byte aligned; groups * 32 >= chunks * K and a multiple of 256.
// numerics: activations are 16-bit integers times a scale per 32 (quantised types) or pairs of f16
//           (floats): relative error below 2e-5 of a group's largest value, 2^-22 for floats.
//           Integer products are exact, scales and sums f32. One order of addition for each
//           geometry.
#pragma once
#include "records.cuh"

// D[16,8] += A[16,16] B[16,8] on signed bytes: a0 = A[g][4t..], a1 = A[g+8][4t..], b0 = B[4t..][g].
INLINE void mma_s8_k16(i32 (&d)[4], u32 a0, u32 a1, u32 b0) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

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

INLINE float4 load4(const float* p) {
    return *reinterpret_cast<const float4*>(p);
}
INLINE float part_of(float4 v, int i) {
    float low = (i & 1) ? v.y : v.x, high = (i & 1) ? v.w : v.z;
    return (i & 2) ? high : low;
}

// c[e] = 256 (a b_high)[e] + (a b_low)[e], exact: 32 * 128 * 32640 < 2^27.
template <int SUBS>
INLINE void dot(const u32 (&a)[4], uint4 b, i32 (&c)[SUBS][4]) {
    i32 high[SUBS][4] = {}, low[SUBS][4] = {};
    if (SUBS == 1) {
        u32 b_high[2] = {b.x, b.y}, b_low[2] = {b.z, b.w};
        mma_s8(high[0], a, b_high);
        mma_s8(low[0], a, b_low);
    } else {
        mma_s8_k16(high[0], a[0], a[1], b.x);
        mma_s8_k16(low[0], a[0], a[1], b.z);
        mma_s8_k16(high[SUBS - 1], a[2], a[3], b.y);
        mma_s8_k16(low[SUBS - 1], a[2], a[3], b.w);
    }
#pragma unroll
    for (int s = 0; s < SUBS; s++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[s][e] = high[s][e] * 256 + low[s][e];
}

// Adds one record times the activations to `sum`, four groups of 32 columns at a time.
template <class T, int NT>
INLINE void add_record(
    const u8* record, u32 chunk, u32 groups, const Columns<NT>& x,
    float (&sum)[NT][4]) {
    constexpr int SUBS = T::SUBS;
    int lane = threadIdx.x & 31, g = lane >> 2;
#pragma unroll
    for (int quad = 0; quad < T::K / 128; quad++) {
        u32 a[4][4];
        float d[4][2][SUBS], m[4][2][SUBS];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            T::codes(record, quad * 4 + i, lane, a[i]);
            T::scales(record, quad * 4 + i, g, d[i], m[i]);
        }
        u32 group = chunk * (T::K / 32) + quad * 4;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float4 scale[2], total[2][SUBS];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float* from = x.scales[n][j];
                scale[j] = load4(from + group);
                if (T::MIN && SUBS == 1) total[j][0] = load4(from + groups + group);
                if (T::MIN && SUBS == 2) {
                    total[j][0] = load4(from + 2 * groups + 2 * group);
                    total[j][SUBS - 1] = load4(from + 2 * groups + 2 * group + 4);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const u8* from = x.quants[n] + u64(group + i) * 64;
                i32 c[SUBS][4];
                dot<SUBS>(a[i], *reinterpret_cast<const uint4*>(from), c);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float weighted = d[i][e >> 1][0] * float(c[0][e]);
                    if (SUBS == 2) weighted += d[i][e >> 1][SUBS - 1] * float(c[SUBS - 1][e]);
                    sum[n][e] += weighted * part_of(scale[e & 1], i);
                    if (T::MIN && SUBS == 1)
                        sum[n][e] -= m[i][e >> 1][0] * part_of(total[e & 1][0], i);
                    if (T::MIN && SUBS == 2) {
                        float4 halves = total[e & 1][i >> 1 & (SUBS - 1)];
                        sum[n][e] -= m[i][e >> 1][0] * part_of(halves, 2 * (i & 1));
                        sum[n][e] -= m[i][e >> 1][SUBS - 1] * part_of(halves, 2 * (i & 1) + 1);
                    }
                }
            }
        }
    }
}

// The same for floating-point records: activations are the sum of two f16.
template <int NT, int PARTS>
INLINE void add_halves(const u8* record, u32 chunk, const Columns<NT>& x, float (&sum)[NT][4]) {
    constexpr int STEPS = 4 / PARTS;
    int lane = threadIdx.x & 31;
    u32 a[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) plane8(record, i, lane, a[i]);
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const u8* from = x.quants[n] + u64(chunk * STEPS + i) * 64;
            uint4 b = *reinterpret_cast<const uint4*>(from);
            u32 high[2] = {b.x, b.y}, low[2] = {b.z, b.w};
            mma_f16(sum[n], a[i * PARTS], high);
            mma_f16(sum[n], a[i * PARTS], low);
            if (PARTS == 2) mma_f16(sum[n], a[i * PARTS + PARTS - 1], high);
        }
}

template <class T, int NT>
struct Body {
    static constexpr bool FLOATS = false;
    static INLINE void add(const u8* record, u32 chunk, u32 groups,
                           const Columns<NT>& x, float (&sum)[NT][4]) {
        add_record<T, NT>(record, chunk, groups, x, sum);
    }
};
template <int NT>
struct Body<F16, NT> {
    static constexpr bool FLOATS = true;
    static INLINE void add(const u8* record, u32 chunk, u32, const Columns<NT>& x,
                           float (&sum)[NT][4]) {
        add_halves<NT, 1>(record, chunk, x, sum);
    }
};
template <int NT>
struct Body<F32, NT> {
    static constexpr bool FLOATS = true;
    static INLINE void add(const u8* record, u32 chunk, u32, const Columns<NT>& x,
                           float (&sum)[NT][4]) {
        add_halves<NT, 2>(record, chunk, x, sum);
    }
};

struct LinearRows {
    const u8* records;
    const float* row_scale;
    u32 rows, tiles, chunks;
    const u8* x;
    const float* x_scale;
    u32 groups;
    float* out;
    u64 out_stride;
    u32 x_rows;
    const int4* segments;
    const i32* order;
    u32 share;
};

// Rows of activations that this block multiplies: entries first..first+count, by way of `order` if
// experts chose them.
struct Batch {
    const i32* order;
    u32 first, count, share;
    // Column `j`, clamped: what the columns past the last compute is never stored.
    INLINE u32 entry(u32 j) const {
        u32 at = first + min(j, count - 1);
        return order ? u32(order[at]) : at;
    }
};

template <class T, int NT>
INLINE void write_tile(const LinearRows& p, const Batch& batch, const float* row_scale, u32 tile,
                       const float* partial, u32 warps) {
    constexpr int SIZE = NT * 8 * COLUMN;
    for (u32 i = threadIdx.x; i < batch.count * 16; i += blockDim.x) {
        u32 column = i >> 4, row = tile * 16 + (i & 15);
        float total = 0;
        for (u32 w = 0; w < warps; w++) total += partial[w * SIZE + column * COLUMN + (i & 15)];
        if (row >= p.rows) continue;
        u32 entry = batch.entry(column);
        if (Body<T, NT>::FLOATS) total *= row_scale[row] * p.x_scale[entry / batch.share];
        p.out[u64(entry) * p.out_stride + row] = total;
    }
}

template <class T, int NT>
INLINE void linear_rows(const LinearRows& p) {
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
    u32 next_tile = blockIdx.x, next_chunk = warp, slot = 0;
    auto fetch = [&](u32 to) {
        if (next_tile < p.tiles && next_chunk < p.chunks) {
            const u8* from = records + (u64(next_tile) * p.chunks + next_chunk) * T::BYTES;
#pragma unroll
            for (u32 i = 0; i < T::BYTES; i += 512)
                if (i + 512 <= T::BYTES || i + lane * 16 < T::BYTES)
                    cp_async16(ring + to * T::BYTES + i + lane * 16, from + i + lane * 16);
            next_chunk += warps;
            if (next_chunk >= p.chunks) next_chunk = warp, next_tile += gridDim.x;
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
                (Body<T, NT>::FLOATS ? 128 : 64) + t * 16;
#pragma unroll
        for (int j = 0; j < 2; j++)
            x.scales[n][j] =
                p.x_scale + u64(batch.entry(n * 8 + 2 * t + j) / batch.share) * p.groups * 4;
    }

    for (u32 tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
        float sum[NT][4] = {};
        for (u32 chunk = warp; chunk < p.chunks; chunk += warps) {
            cp_async_wait<STAGES - 2>();
            // Also keeps the copy below from a slot that a lane still reads.
            __syncwarp();
            fetch((slot + STAGES - 1) % STAGES);
            Body<T, NT>::add(ring + slot * T::BYTES, chunk, p.groups, x, sum);
            slot = (slot + 1) % STAGES;
        }
        float* own = partial + warp * (NT * 8 * COLUMN) + g;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                own[(n * 8 + 2 * t + (e & 1)) * COLUMN + (e >> 1) * 8] = sum[n][e];
        __syncthreads();
        write_tile<T, NT>(p, batch, row_scale, tile, partial, warps);
        __syncthreads();
    }
}

#define LINEAR_ROWS(NAME, TYPE, NT)                                                               \
    KERNEL __launch_bounds__(NT == 1 ? 512 : 256) linear_rows_##NAME##_##NT(                  \
        const u8* records, const float* row_scale, u32 rows, u32 tiles,          \
        u32 chunks, const u8* x, const float* x_scale, u32 groups, float* out, u64 out_stride,    \
        u32 x_rows, const int4* segments, const i32* order, u32 share) {                          \
        linear_rows<TYPE, NT>({records, row_scale, rows, tiles, chunks, x, x_scale, groups, \
                               out, out_stride, x_rows, segments, order, share});                 \
    }
#define LINEAR_ROWS_ALL(NAME, TYPE) \
    LINEAR_ROWS(NAME, TYPE, 1)      \
    LINEAR_ROWS(NAME, TYPE, 2)      \
    LINEAR_ROWS(NAME, TYPE, 4)
