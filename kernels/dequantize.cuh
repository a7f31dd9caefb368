// dequantize, dequantize_rows
// math:     dequantize:      out[n, k] = f16(W[n, k] / row_scale[n])
//           dequantize_rows: out[r] = W[ids[r]], zeros if ids[r] < 0
// shapes:   records, grid, row_scale: as in linear_rows. dequantize: out = F16 records of `tiles` row
//           tiles from first_tile on, [tiles, chunks * K / 16] of 512 bytes. dequantize_rows: ids i32
//           [rows], out f32 [rows, columns], row stride out_stride; ids past the table are clamped.
// launch:   dequantize: grid ceil(tiles * chunks / 8), block 256, a warp owns a record.
//           dequantize_rows: grid (ceil(chunks / 8), rows), block 256, a warp owns its row's part of a
//           record: lane 4 i + t columns 4t.. and 16+4t.. of group i.
// bytes:    dequantize: tiles * chunks * (BYTES + 32 * K). dequantize_rows: about BYTES / 8 a record, +
//           4 * rows * columns. The table may lie in host memory.
// limits:   out of dequantize 16-byte aligned.
// numerics: the value in f32, then rounded once; row_scale is a power of two.
#pragma once
#include "records.cuh"

INLINE float byte_of(u32 word, int i) {
    return float(i8(word >> (8 * i) & 255));
}

template <class T>
INLINE void dequantize(const u8* records, const u32* grid, const float* row_scale, u32 first_tile,
                       u32 tiles, u32 chunks, u8* out) {
    wait_for_previous();
    start_next();
    u32 lane = threadIdx.x % 32, g = lane / 4, item = blockIdx.x * 8 + threadIdx.x / 32;
    if (item >= tiles * chunks) return;
    u32 tile = first_tile + item / chunks;
    const u8* record = records + (u64(first_tile) * chunks + item) * T::BYTES;
    uint4* to = reinterpret_cast<uint4*>(out) + u64(item) * (T::K / 16) * 32 + lane;
    float factor[2] = {1.0f / row_scale[tile * 16 + g], 1.0f / row_scale[tile * 16 + g + 8]};
#pragma unroll
    for (int i = 0; i < T::K / 32; i++) {
        u32 a[4];
        float d[2][T::SUBS], m[2][T::SUBS];
        T::codes(record, grid, i, lane, a);
        T::scales(record, i, g, d, m);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            constexpr int LAST = T::SUBS - 1;
            u32 pair[2][2];
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float scale = d[r][h & LAST] * factor[r];
                    float minimum = T::MIN ? m[r][h & LAST] * factor[r] : 0.0f;
                    pair[r][j] = pack_f16(byte_of(a[2 * h + r], 2 * j) * scale - minimum,
                                          byte_of(a[2 * h + r], 2 * j + 1) * scale - minimum);
                }
            to[(2 * i + h) * 32] = make_uint4(pair[0][0], pair[1][0], pair[0][1], pair[1][1]);
        }
    }
}

// The four values of a lane in group `i`, half `h`, of a row with `g` and `r` as in a record.
template <class T>
struct Lookup {
    static constexpr int STEP = 32, HALVES = 2;
    static INLINE float4 read(const u8* record, const u32* grid, int i, int h, int g, int r, int t) {
        u32 a[4];
        float d[2][T::SUBS], m[2][T::SUBS];
        T::codes(record, grid, i, 4 * g + t, a);
        T::scales(record, i, g, d, m);
        u32 word = h ? (r ? a[3] : a[2]) : (r ? a[1] : a[0]);
        constexpr int LAST = T::SUBS - 1;
        float scale = h ? (r ? d[1][LAST] : d[0][LAST]) : (r ? d[1][0] : d[0][0]);
        float minimum = 0.0f;
        if (T::MIN) minimum = h ? (r ? m[1][LAST] : m[0][LAST]) : (r ? m[1][0] : m[0][0]);
        return make_float4(byte_of(word, 0) * scale - minimum, byte_of(word, 1) * scale - minimum,
                           byte_of(word, 2) * scale - minimum, byte_of(word, 3) * scale - minimum);
    }
};

INLINE float4 halves_at(const u8* tile, int g, int r, int t) {
    uint4 v = at<uint4>(tile + (4 * g + t) * 16);
    float2 a = unpack_f16(r ? v.y : v.x), b = unpack_f16(r ? v.w : v.z);
    return make_float4(a.x, a.y, b.x, b.y);
}
template <>
struct Lookup<F16> {
    static constexpr int STEP = 16, HALVES = 1;
    static INLINE float4 read(const u8* record, const u32*, int i, int, int g, int r, int t) {
        return halves_at(record + i * 512, g, r, t);
    }
};
template <>
struct Lookup<F32> {
    static constexpr int STEP = 16, HALVES = 1;
    static INLINE float4 read(const u8* record, const u32*, int i, int, int g, int r, int t) {
        float4 a = halves_at(record + i * 1024, g, r, t);
        float4 b = halves_at(record + i * 1024 + 512, g, r, t);
        return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
};

template <class T, bool SCALED>
INLINE void dequantize_rows(const u8* records, const u32* grid, const float* row_scale, u32 table_rows,
                            u32 chunks, const i32* ids, float* out, u64 out_stride, u32 columns) {
    wait_for_previous();
    start_next();
    u32 lane = threadIdx.x % 32, t = lane % 4, chunk = blockIdx.x * 8 + threadIdx.x / 32;
    int i = lane / 4;
    if (chunk >= chunks || i >= T::K / Lookup<T>::STEP) return;
    i32 id = ids[blockIdx.y];
    u32 row = min(u32(max(id, 0)), table_rows - 1), g = row % 8, r = row / 8 % 2;
    const u8* record = records + (u64(row / 16) * chunks + chunk) * T::BYTES;
    float factor = id < 0 ? 0.0f : SCALED ? row_scale[row] : 1.0f;
    float* to = out + blockIdx.y * out_stride;
#pragma unroll
    for (int h = 0; h < Lookup<T>::HALVES; h++) {
        u32 column = chunk * T::K + i * Lookup<T>::STEP + h * 16 + t * 4;
        if (column >= columns) continue;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (id >= 0) v = Lookup<T>::read(record, grid, i, h, g, r, t);
        float values[4] = {v.x, v.y, v.z, v.w};
        for (u32 j = 0; j < 4 && column + j < columns; j++) to[column + j] = values[j] * factor;
    }
}

#define DEQUANTIZE(NAME, TYPE)                                                                  \
    KERNEL __launch_bounds__(256) dequantize_##NAME(                                            \
        const u8* records, const u32* grid, const float* row_scale, u32 first_tile, u32 tiles,  \
        u32 chunks, u8* out) {                                                                  \
        dequantize<TYPE>(records, grid, row_scale, first_tile, tiles, chunks, out);             \
    }
#define DEQUANTIZE_ROWS(NAME, TYPE, SCALED)                                                       \
    KERNEL __launch_bounds__(256) dequantize_rows_##NAME(                                         \
        const u8* records, const u32* grid, const float* row_scale, u32 table_rows, u32 chunks,   \
        const i32* ids, float* out, u64 out_stride, u32 columns) {                                \
        dequantize_rows<TYPE, SCALED>(records, grid, row_scale, table_rows, chunks, ids, out,     \
                                      out_stride, columns);                                       \
    }
