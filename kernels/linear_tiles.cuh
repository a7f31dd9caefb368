// linear_tiles
// math:     out[r, n] = sum_k W[n, k] x[r, k] for many rows r; with experts W = W[ids[r]].
// shapes:   as in linear_rows; a block takes 16 NI rows of x, or a segment of at most as many.
// launch:   grid (ceil(x_rows / (16 NI)) or segments, ceil(tiles / 8)), block 256. A block owns 128
//           rows of W by 16 NI of x. Each step of columns (see linear.cuh) is copied STAGES - 1
//           steps ahead, records as they are. Once a record the block turns its scales into f32;
//           warp 4 j + i multiplies record tiles 2 i, 2 i + 1 with the columns 8 NI j.. .
//           Shared: see Shape; NI = 8 keeps the sums of finished classes there, NI = 4 in
//           registers.
// bytes:    tiles * chunks * BYTES * ceil(x_rows / (16 NI)) and x_rows * K * 2 * tiles / 8, mostly
//           from L2, + x_rows * rows * 4.
// limits:   records 16-byte aligned; x below 64 GiB; groups * 32 >= chunks * K and a multiple of 256; classes <=
//           chunks. Columns of x past the last are computed from the last and not stored.
// numerics: bit for bit those of linear_rows.
//
// Speed. A unit of 16 x 8 x 32 (8192 operations, counted as multiply-adds of the matrices) takes of
// a quarter of an SM 2 tensor products, 12 instructions to join, convert and scale (16 with
// minimums, 24 with two scales a group), half a load of activations, 1 to 2 of decoding and 3 to 4
// of copies. On an H200 a product takes 6.3 cycles (4.2 for 16 columns) and overlaps little with
// f32 arithmetic: 30 cycles at least, 250 TFLOP/s at 1.75 GHz. Measured for 1024 rows by 34816 x
// 5120: Q8_0 185, Q4_K 162, Q6_K 119, F16 154; what is missing are waits for shared memory and for
// register ports.
#pragma once
#include "linear.cuh"

INLINE void cp_async4(void* shared, const void* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)),
                 "l"(global)
                 : "memory");
}

constexpr u32 THREADS = 256;
// Record tiles of a block, and of a warp.
constexpr u32 TILES = 8;
constexpr int MI = 2;
constexpr u32 WARP_ROWS = TILES / MI;

// Shared memory, in this order.
template <class T, int NI>
struct Shape {
    typedef Format<T> F;
    static constexpr u32 TOKENS = 16 * NI;
    static constexpr u32 STAGES = NI == 8 ? 3 : 2;
    // Records of a row tile: those that steps in flight need.
    static constexpr u32 RING = F::STEPS == 1 ? STAGES : 2;
    static constexpr u32 RECORDS = TILES * T::BYTES;
    static constexpr u32 QUANTS = F::GROUPS * TOKENS * 64;
    // A scale of each token, then sums of its groups.
    static constexpr u32 SCALES = F::FLOATS ? 0 : TOKENS * (F::MIN ? 4 + 16 * F::SUBS : 4);
    static constexpr u32 STAGE = QUANTS + SCALES;
    // Scales of a record's groups, f32 [tile, group, sub, g, 2], then minimums.
    static constexpr u32 HALF_HEADS = F::FLOATS ? 0 : TILES * F::STEPS * 4 * F::SUBS * 64;
    static constexpr u32 HEADS = HALF_HEADS * (F::MIN ? 2 : 1);
    static constexpr u32 TOTALS = NI == 8 ? MI * NI * 16 * THREADS : 0;
    static constexpr u32 PLACES_AT = RING * RECORDS + STAGES * STAGE + HEADS + TOTALS;
    static constexpr u32 BYTES = PLACES_AT + TOKENS * 4;
};

// Copies columns `step` of the block's rows of x. places: of each row its address in 16 bytes, which
// is also the place of its scales.
template <class T, int NI>
INLINE void fetch_activations(const Linear& p, const u32* places, u32 step, u8* to) {
    typedef Format<T> F;
    typedef Shape<T, NI> S;
    constexpr u32 PIECES = F::GROUPS * 4, TOKENS_AT_ONCE = THREADS / PIECES;
    u32 piece = threadIdx.x % PIECES, token = threadIdx.x / PIECES;
    u8* own = to + (piece / 4 * S::TOKENS + token) * 64 + piece % 4 * 16;
#pragma unroll
    for (u32 k = 0; k < S::TOKENS / TOKENS_AT_ONCE; k++) {
        u32 at = places[k * TOKENS_AT_ONCE + token] + step * PIECES + piece;
        cp_async16(own + k * TOKENS_AT_ONCE * 64, p.x + u64(at) * 16);
    }
    if (F::FLOATS || threadIdx.x >= S::TOKENS) return;
    to += S::QUANTS;
    const float* scales = p.x_scale + places[threadIdx.x];
    cp_async4(to + threadIdx.x * 4, scales + step);
#pragma unroll
    for (int s = 0; s < F::MIN * F::SUBS; s++)
        cp_async16(to + S::TOKENS * 4 + (threadIdx.x * F::SUBS + s) * 16,
                   scales + F::SUBS * (p.groups + 4 * step) + 4 * s);
}

// Copies a chunk of the block's record tiles.
template <class T>
INLINE void fetch_records(const Linear& p, const u8* records, u32 chunk, u8* to) {
    constexpr u32 PIECES = T::BYTES / 16;
#pragma unroll
    for (u32 k = 0; k < TILES * PIECES; k += THREADS) {
        u32 i = k + threadIdx.x;
        if (k + THREADS > TILES * PIECES && i >= TILES * PIECES) break;
        u32 tile = min(blockIdx.y * TILES + i / PIECES, p.tiles - 1);
        u64 piece = u64(tile * p.chunks + chunk) * PIECES + i % PIECES;
        cp_async16(to + i * 16, records + piece * 16);
    }
}

// Scales and minimums of all groups of a chunk.
template <class T, u32 HALF>
INLINE void prepare_heads(const u8* records, u8* heads) {
    constexpr u32 GROUPS = T::K / 32;
    for (u32 i = threadIdx.x; i < TILES * GROUPS * 8; i += THREADS) {
        u32 g = i % 8, group = i / 8 % GROUPS, tile = i / (8 * GROUPS);
        float d[2][T::SUBS], m[2][T::SUBS];
        T::scales(records + tile * T::BYTES, int(group), int(g), d, m);
#pragma unroll
        for (u32 s = 0; s < T::SUBS; s++) {
            float2* to = reinterpret_cast<float2*>(heads) + (i / 8 * T::SUBS + s) * 8 + g;
            *to = make_float2(d[0][s], d[1][s]);
            if (T::MIN) to[HALF / 8] = make_float2(m[0][s], m[1][s]);
        }
    }
}

// What prepare_heads wrote of the four groups of a step.
template <int SUBS>
INLINE void load_heads(const u8* heads, float (&d)[4][2][SUBS]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int s = 0; s < SUBS; s++) {
            float2 pair = *reinterpret_cast<const float2*>(heads + (i * SUBS + s) * 64);
            d[i][0][s] = pair.x, d[i][1][s] = pair.y;
        }
}

// One step of a warp. heads: at the groups of the step and this lane's g.
template <class T, int NI>
INLINE void multiply_step(const u8* record, const u8* heads, u32 part, const u8* stage,
                          float (&sum)[MI][NI][4]) {
    typedef Format<T> F;
    typedef Shape<T, NI> S;
    constexpr u32 TILE_HEADS = F::STEPS * 4 * F::SUBS * 64;
    u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    u32 column = threadIdx.x / (32 * WARP_ROWS) * (NI * 8);
    // Before the offsets that are known, so that these become part of the loads.
    const u8* quants = stage + (column + g) * 64 + t * 16;
    const u8* scales = stage + S::QUANTS + (column + 2 * t) * 4;
    const u8* column_sums = stage + S::QUANTS + S::TOKENS * 4 + (column + 2 * t) * F::SUBS * 16;
    if constexpr (F::MIN) {
#pragma unroll
        for (int i = 0; i < MI; i++) {
            float m[4][2][F::SUBS];
            load_heads<F::SUBS>(heads + S::HALF_HEADS + i * TILE_HEADS, m);
#pragma unroll
            for (int n = 0; n < NI; n++) {
                float4 sums[2][F::SUBS];
#pragma unroll
                for (int j = 0; j < 2 * F::SUBS; j++)
                    sums[j / F::SUBS][j % F::SUBS] = *reinterpret_cast<const float4*>(
                        column_sums + (n * 8 * F::SUBS + j) * 16);
                subtract_minimums<F::SUBS>(m, sums, sum[i][n]);
            }
        }
    }
    Weights<T> w[MI];
#pragma unroll
    for (int i = 0; i < MI; i++) {
        Step<T>::codes(record + i * T::BYTES, part, lane, w[i].a);
        if constexpr (!F::FLOATS) load_heads<F::SUBS>(heads + i * TILE_HEADS, w[i].d);
    }
#pragma unroll
    for (int n = 0; n < NI; n++) {
        uint4 b[F::GROUPS];
#pragma unroll
        for (int i = 0; i < F::GROUPS; i++)
            b[i] = *reinterpret_cast<const uint4*>(quants + i * int(S::TOKENS * 64) + n * 512);
        float2 scale = make_float2(1.0f, 1.0f);
        if constexpr (!F::FLOATS) scale = *reinterpret_cast<const float2*>(scales + n * 32);
#pragma unroll
        for (int i = 0; i < MI; i++) Step<T>::multiply(w[i], b, scale, sum[i][n]);
    }
}

// Ends a class: adds it to those before it, and keeps the total unless it was the last.
template <int NI>
INLINE void end_class(float4* totals, bool first, bool last, float (&sum)[MI][NI][4]) {
#pragma unroll
    for (int i = 0; i < MI * NI; i++) {
        float(&own)[4] = sum[i / NI][i % NI];
        float4* kept = totals + i * THREADS + threadIdx.x;
        if (!first) {
            float4 total = *kept;
            own[0] = __fadd_rn(total.x, own[0]), own[1] = __fadd_rn(total.y, own[1]);
            own[2] = __fadd_rn(total.z, own[2]), own[3] = __fadd_rn(total.w, own[3]);
        }
        if (!last) {
            *kept = make_float4(own[0], own[1], own[2], own[3]);
            own[0] = own[1] = own[2] = own[3] = 0.0f;
        }
    }
}
template <int NI>
INLINE void end_class(float (&totals)[MI][NI][4], bool first, bool last,
                      float (&sum)[MI][NI][4]) {
#pragma unroll
    for (int i = 0; i < MI * NI * 4; i++) {
        float& own = sum[i / (4 * NI)][i / 4 % NI][i % 4];
        float& total = totals[i / (4 * NI)][i / 4 % NI][i % 4];
        if (!first) own = __fadd_rn(total, own);
        if (!last) total = own, own = 0.0f;
    }
}

template <class T, int NI>
INLINE void store_tiles(const Linear& p, const Batch& batch, const float* row_scale,
                        const float (&sum)[MI][NI][4]) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 first = (blockIdx.y * TILES + warp % WARP_ROWS * MI) * 16 + lane / 4;
    u32 column = warp / WARP_ROWS * (NI * 8) + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < NI; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            u32 token = column + n * 8 + j;
            if (token >= batch.count) continue;
            u32 entry = batch.entry(token);
            float scale = Format<T>::FLOATS ? p.x_scale[entry / batch.share] : 1.0f;
            float* out = p.out + u64(entry) * p.out_stride;
#pragma unroll
            for (int i = 0; i < 2 * MI; i++) {
                u32 row = first + i * 8;
                if (row >= p.rows) continue;
                float value = sum[i / 2][n][i % 2 * 2 + j];
                if (Format<T>::FLOATS) value *= row_scale[row] * scale;
                out[row] = value;
            }
        }
}

INLINE void store_zeros(const Linear& p, const Batch& batch) {
    for (u32 i = threadIdx.x; i < batch.count * (TILES * 16); i += THREADS) {
        u32 row = blockIdx.y * (TILES * 16) + i % (TILES * 16);
        if (row < p.rows) p.out[u64(batch.entry(i / (TILES * 16))) * p.out_stride + row] = 0.0f;
    }
}

// Chunks in the order of linear.cuh, step by step.
template <u32 STEPS>
struct Walk {
    u32 k, chunk, part;
    INLINE bool done(const Linear& p) const {
        return k >= p.classes;
    }
    // True if a class ended.
    INLINE bool advance(const Linear& p) {
        if (++part < STEPS) return false;
        part = 0, chunk += p.classes;
        if (chunk < p.chunks) return false;
        chunk = ++k;
        return true;
    }
};

template <class T, int NI>
INLINE void linear_tiles(const Linear& p) {
    typedef Format<T> F;
    typedef Shape<T, NI> S;
    extern __shared__ __align__(16) u8 shared[];
    u8* stages = shared + S::RING * S::RECORDS;
    u8* heads = stages + S::STAGES * S::STAGE;
    u32* places = reinterpret_cast<u32*>(shared + S::PLACES_AT);
    wait_for_previous();
    start_next();
    Batch batch = {nullptr, blockIdx.x * S::TOKENS, 0, 1};
    i32 expert = 0;
    if (p.segments) {
        int4 segment = p.segments[blockIdx.x];
        expert = segment.x;
        batch = {p.order, u32(segment.y), u32(segment.z), p.share};
        if (batch.count == 0) return;
        if (expert < 0) return store_zeros(p, batch);
    } else {
        batch.count = min(S::TOKENS, p.x_rows - batch.first);
    }
    const u8* records = p.records + u64(expert) * p.tiles * p.chunks * T::BYTES;
    if (threadIdx.x < S::TOKENS)
        places[threadIdx.x] =
            batch.entry(threadIdx.x) / batch.share * p.groups * (F::X_BYTES / 16);
    __syncthreads();

    Walk<F::STEPS> ahead = {0, 0, 0};
    u32 to_record = 0, to_stage = 0;
    auto fetch = [&]() {
        if (!ahead.done(p)) {
            if (ahead.part == 0) {
                fetch_records<T>(p, records, ahead.chunk, shared + to_record * S::RECORDS);
                to_record = to_record + 1 == S::RING ? 0 : to_record + 1;
            }
            fetch_activations<T, NI>(p, places, ahead.chunk * F::STEPS + ahead.part,
                                     stages + to_stage * S::STAGE);
            to_stage = to_stage + 1 == S::STAGES ? 0 : to_stage + 1;
            ahead.advance(p);
        }
        cp_async_commit();
    };
#pragma unroll
    for (u32 s = 0; s < S::STAGES - 1; s++) fetch();

    float sum[MI][NI][4] = {};
    float kept[MI][NI][4];
    u32 record = 0, stage = 0, tile = threadIdx.x / 32 % WARP_ROWS * MI;
    Walk<F::STEPS> at = {0, 0, 0};
    while (!at.done(p)) {
        cp_async_wait<S::STAGES - 2>();
        // Everybody's copies have arrived, and everybody has left the slot that is filled next.
        __syncthreads();
        fetch();
        const u8* current = shared + record * S::RECORDS;
        if constexpr (!F::FLOATS) {
            if (at.part == 0) {
                prepare_heads<T, S::HALF_HEADS>(current, heads);
                __syncthreads();
            }
        }
        const u8* own = heads + (tile * F::STEPS + at.part) * (4 * F::SUBS * 64) +
            threadIdx.x % 32 / 4 * 8;
        multiply_step<T, NI>(current + tile * T::BYTES, own, at.part,
                             stages + stage * S::STAGE, sum);
        stage = stage + 1 == S::STAGES ? 0 : stage + 1;
        if (at.part + 1 == F::STEPS) record = record + 1 == S::RING ? 0 : record + 1;
        u32 k = at.k;
        if (at.advance(p)) {
            if constexpr (S::TOTALS != 0)
                end_class<NI>(reinterpret_cast<float4*>(heads + S::HEADS), k == 0, at.done(p), sum);
            else
                end_class<NI>(kept, k == 0, at.done(p), sum);
        }
    }
    store_tiles<T, NI>(p, batch, p.row_scale + u64(expert) * p.tiles * 16, sum);
}

#define LINEAR_TILES(NAME, TYPE, NI)                                                            \
    KERNEL __launch_bounds__(THREADS, 1) linear_tiles_##NAME##_##NI(LINEAR_PARAMETERS) {        \
        linear_tiles<TYPE, NI>({LINEAR_ARGUMENTS});                                             \
    }
#define LINEAR_TILES_ALL(NAME, TYPE) \
    LINEAR_TILES(NAME, TYPE, 4)      \
    LINEAR_TILES(NAME, TYPE, 8)
