// quantize_activations
// math:     s16:   x = s (256 h + l), s = max |x| of 128 columns / 32512; h, l signed bytes.
//           pairs: x = s (h + l), s a power of two per row; h = f16(x / s), l = f16(x / s - h).
// shapes:   x f32 [rows, columns], row stride in elements. Columns up to 32 * groups are zeros. Of
//           each group of 32 (16) columns, thread t of a product owns columns 4t..4t+3 (and
//           16+4t..).
//           s16:   quants [rows, groups] of 64 bytes: of t the words h(4t), h(16+4t), l(4t),
//           l(16+4t); scales f32 [rows]: s[groups / 4], padded to groups | sums of x[groups] | sums
//           of 16 columns[2 groups].
//           pairs: quants [rows, 2 groups] of 64 bytes: of t the pairs h(4t, 4t+1), h(4t+2, 4t+3),
//           then l; scales f32 [rows].
// launch:   s16: grid (ceil(groups / 32), rows), block 256, a thread owns 4 columns, a warp
//           128. pairs: grid rows, block 256, a block owns a row.
// bytes:    rows * columns * 4 (twice through the cache for pairs) + rows * groups * (64 + 13 |
//           128).
// limits:   columns <= 32 * groups; groups a multiple of 8.
// numerics: to nearest; s16 is off by at most 2^-16 of the largest of 128 values, pairs by 2^-22 of
//           each. The sums are those of the rounded values. NaN and infinity spread to the 128
//           columns or to the row through s.
#include "common.cuh"

// Four columns; zeros past the end.
INLINE float4 load_columns(const float* row, u32 column, u32 columns) {
    const float* from = row + column;
    if (column + 4 <= columns && (u64(from) & 15) == 0)
        return *reinterpret_cast<const float4*>(from);
    float v[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) v[i] = column + i < columns ? from[i] : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

// Bits of the largest magnitude; as integers NaN is above infinity.
INLINE u32 magnitude(float4 v) {
    u32 x = __float_as_uint(v.x) & 0x7fffffff, y = __float_as_uint(v.y) & 0x7fffffff;
    u32 z = __float_as_uint(v.z) & 0x7fffffff, w = __float_as_uint(v.w) & 0x7fffffff;
    return max(max(x, y), max(z, w));
}

KERNEL __launch_bounds__(256) quantize_activations_s16(
    const float* x, u64 x_stride, u32 columns, u32 groups, u8* quants, float* scales) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 column = (blockIdx.x * 256 + threadIdx.x) * 4, group = column / 32;
    float4 v = load_columns(x + row * x_stride, min(column, columns), columns);
    u32 largest = magnitude(v);
#pragma unroll
    for (u32 step = 1; step < WARP; step *= 2)
        largest = max(largest, __shfl_xor_sync(FULL, largest, step));
    float limit = __uint_as_float(largest);
    float inverse = limit > 1e-30f ? 32512.0f / limit : 0.0f;
    i32 q[4] = {__float2int_rn(v.x * inverse), __float2int_rn(v.y * inverse),
                __float2int_rn(v.z * inverse), __float2int_rn(v.w * inverse)};
    u32 high = 0, low = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        i32 upper = (q[i] + 128) >> 8;
        high |= (u32(upper) & 255) << (8 * i);
        low |= (u32(q[i] - upper * 256) & 255) << (8 * i);
    }
    i32 half_sum = q[0] + q[1] + q[2] + q[3];
    half_sum += __shfl_xor_sync(FULL, half_sum, 1);
    half_sum += __shfl_xor_sync(FULL, half_sum, 2);
    i32 sum = half_sum + __shfl_xor_sync(FULL, half_sum, 4);
    if (group >= groups) return;
    u32 t = threadIdx.x & 3, half = threadIdx.x >> 2 & 1;
    u32* to = reinterpret_cast<u32*>(quants + (row * groups + group) * 64 + t * 16 + half * 4);
    to[0] = high;
    to[2] = low;
    float scale = limit * (1.0f / 32512.0f);
    float* own = scales + row * groups * 4;
    if ((threadIdx.x & 7) == 0) {
        if (threadIdx.x % WARP == 0) own[group / 4] = scale;
        own[groups + group] = scale * float(sum);
    }
    if (t == 0) own[2 * groups + 2 * group + half] = scale * float(half_sum);
}

// The power of two that brings the largest value of the row into [2^13, 2^14), and its inverse.
INLINE float2 row_factor(const float* row, u32 columns) {
    __shared__ u32 partial[8];
    u32 largest = 0;
    for (u32 column = threadIdx.x * 4; column < columns; column += 1024)
        largest = max(largest, magnitude(load_columns(row, column, columns)));
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2)
        largest = max(largest, __shfl_xor_sync(FULL, largest, step));
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) largest = max(largest, partial[i]);
    u32 exponent = largest >> 23;
    if (exponent == 255) return make_float2(1.0f, 1.0f);
    exponent = max(exponent, 14u);
    u32 factor = (267 - exponent) << 23, inverse = (exponent - 13) << 23;
    return make_float2(__uint_as_float(factor), __uint_as_float(inverse));
}

KERNEL __launch_bounds__(256) quantize_activations_pairs(
    const float* x, u64 x_stride, u32 columns, u32 groups, u8* quants, float* scales) {
    wait_for_previous();
    start_next();
    const float* row = x + blockIdx.x * x_stride;
    float2 factor = row_factor(row, columns);
    if (threadIdx.x == 0) scales[blockIdx.x] = factor.y;
    for (u32 column = threadIdx.x * 4; column < groups * 32; column += 1024) {
        float4 v = load_columns(row, min(column, columns), columns);
        v = make_float4(v.x * factor.x, v.y * factor.x, v.z * factor.x, v.w * factor.x);
        uint4 pairs;
        pairs.x = pack_f16(v.x, v.y);
        pairs.y = pack_f16(v.z, v.w);
        float2 a = unpack_f16(pairs.x), b = unpack_f16(pairs.y);
        pairs.z = pack_f16(v.x - a.x, v.y - a.y);
        pairs.w = pack_f16(v.z - b.x, v.w - b.y);
        u64 at = (u64(blockIdx.x) * groups * 2 + column / 16) * 64 + (column / 4 & 3) * 16;
        *reinterpret_cast<uint4*>(quants + at) = pairs;
    }
}
