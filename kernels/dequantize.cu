// dequantize
// math:     out[n, k] = f16(W[n, k] / row_scale[n])
// shapes:   records, row_scale: as in linear_rows. out: F16 records of `tiles` row tiles from
//           first_tile on, [tiles, chunks * K / 16] of 512 bytes.
// launch:   grid ceil(tiles * chunks / 8), block 256, a warp owns a record.
// bytes:    tiles * chunks * (BYTES + 32 * K).
// limits:   records and out 16-byte aligned; tiles * chunks < 2^32.
// numerics: the value in f32, then rounded once; row_scale is a power of two.
#include "records.cuh"

INLINE float byte_of(u32 word, int i) {
    return float(i8(word >> (8 * i) & 255));
}

template <class T>
INLINE void dequantize(const u8* records, const float* row_scale, u32 first_tile,
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
        T::codes(record, i, lane, a);
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

#define DEQUANTIZE(NAME, TYPE)                                                                  \
    KERNEL __launch_bounds__(256) dequantize_##NAME(                                            \
        const u8* records, const float* row_scale, u32 first_tile, u32 tiles,  \
        u32 chunks, u8* out) {                                                                  \
        dequantize<TYPE>(records, row_scale, first_tile, tiles, chunks, out);             \
    }
DEQUANTIZE(q8_0, Q8_0)
DEQUANTIZE(q4_0, Q4_0)
DEQUANTIZE(q4_1, Q4_1)
DEQUANTIZE(q5_0, Q5_0)
DEQUANTIZE(q5_1, Q5_1)
DEQUANTIZE(q2_k, Q2_K)
DEQUANTIZE(q3_k, Q3_K)
DEQUANTIZE(q4_k, Q4_K)
DEQUANTIZE(q5_k, Q5_K)
DEQUANTIZE(q6_k, Q6_K)
DEQUANTIZE(iq2_xxs, IQ2_XXS)
DEQUANTIZE(iq2_xs, IQ2_XS)
DEQUANTIZE(iq3_xxs, IQ3_XXS)
DEQUANTIZE(iq4_nl, IQ4_NL)
DEQUANTIZE(iq4_xs, IQ4_XS)
DEQUANTIZE(mxfp4, MXFP4)
