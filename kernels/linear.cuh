// What linear_rows and linear_tiles share: their arguments, and the arithmetic of one step of
// columns in one order. A result is the same bits whichever of them computed it, in whatever
// geometry:
//
//   W x = sum over classes, in order, of (sum over the chunks of the class, in order)
//
// where a chunk is a record and belongs to class chunk % classes. `classes` depends on the number
// of chunks alone. A step is 128 columns of quantised types (4 groups of 32), or a record of
// floats; its sum is
//
//   - sum_i m_i X_i + s sum_i d_i (256 high_i + low_i)
//
// with the activations s (256 h + l), the integer products high_i and low_i of group i (of 16
// columns where SUBS is 2), and X_i the sum of the activations of a group.
#pragma once
#include "records.cuh"

struct Linear {
    const u8* records;
    const float* row_scale;
    u32 rows, tiles, chunks, classes;
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

#define LINEAR_PARAMETERS                                                                         \
    const u8 *records, const float *row_scale, u32 rows, u32 tiles, u32 chunks, u32 classes,      \
        const u8 *x, const float *x_scale, u32 groups, float *out, u64 out_stride, u32 x_rows,    \
        const int4 *segments, const i32 *order, u32 share
#define LINEAR_ARGUMENTS                                                                        \
    records, row_scale, rows, tiles, chunks, classes, x, x_scale, groups, out, out_stride,      \
        x_rows, segments, order, share

// Rows of activations that a block multiplies: entries first..first+count, by way of `order` if
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

// STEPS of a record, GROUPS of 64 bytes of activations in a step; X_BYTES of a row of activations
// for each of `groups`.
template <class T>
struct Format {
    enum { FLOATS = 0, STEPS = T::K / 128, GROUPS = 4, X_BYTES = 64, SUBS = T::SUBS, MIN = T::MIN };
};
template <>
struct Format<F16> {
    enum { FLOATS = 1, STEPS = 1, GROUPS = 4, X_BYTES = 128, SUBS = 1, MIN = 0 };
};
template <>
struct Format<F32> {
    enum { FLOATS = 1, STEPS = 1, GROUPS = 2, X_BYTES = 128, SUBS = 1, MIN = 0 };
};

INLINE float4 load4(const float* p) {
    return *reinterpret_cast<const float4*>(p);
}

// Integer products become floats by one conversion where that is fast. On sm_80 it is not: there
// they start at 1.5 * 2^23 (or 1.5 * 2^31) in the bits of a float, and read as a float are that
// number plus the product (times 256), |product| <= 2^19. Both ways round 256 high + low once.
#if __CUDA_ARCH__ >= 860
constexpr bool CONVERT = true;
constexpr u32 LOW_START = 0, HIGH_START = 0;
#else
constexpr bool CONVERT = false;
constexpr u32 LOW_START = 0x4b400000u, HIGH_START = 0x4f400000u;
#endif
constexpr float BOTH_STARTS = 3233808384.0f;

// D = A[16,32] B[32,8] + start on signed bytes, layouts as in mma_s8.
INLINE void product_s8(u32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, u32 start) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
// The same for 16 columns: a0 = A[g][4t..], a1 = A[g+8][4t..], b = B[4t..][g].
INLINE void product_s8_k16(u32 (&d)[4], u32 a0, u32 a1, u32 b, u32 start) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(start));
}

// 256 high + low of two products; the sum is exact in 32 bits.
INLINE float join(u32 high, u32 low) {
    if (CONVERT) return __int2float_rn(i32(high * 256 + low));
    return __fadd_rn(__fadd_rn(__uint_as_float(high), -BOTH_STARTS), __uint_as_float(low));
}

// q[e] += scale (256 high + low)[e].
INLINE void add_product(float (&q)[4], const u32 (&high)[4], const u32 (&low)[4],
                        float upper_scale, float lower_scale) {
#pragma unroll
    for (int e = 0; e < 4; e++)
        q[e] = __fmaf_rn(join(high[e], low[e]), e < 2 ? upper_scale : lower_scale, q[e]);
}

// A step of 16 rows: codes of each group, and their scales and minimums in rows g and g + 8.
template <class T>
struct Weights {
    u32 a[4][4];
    float d[4][2][Format<T>::SUBS];
};

template <class T>
struct Step {
    static INLINE void codes(const u8* record, u32 step, int lane, u32 (&a)[4][4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) T::codes(record, int(step * 4) + i, lane, a[i]);
    }
    // Adds 16 rows by 8 columns; scale: those of columns 2t and 2t + 1.
    static INLINE void multiply(const Weights<T>& w, const uint4 (&b)[4], float2 scale,
                                float (&sum)[4]) {
        constexpr int LAST = Format<T>::SUBS - 1;
        float q[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 high[4], low[4];
            const float(&d)[2][LAST + 1] = w.d[i];
            if (LAST == 0) {
                product_s8(high, w.a[i], b[i].x, b[i].y, HIGH_START);
                product_s8(low, w.a[i], b[i].z, b[i].w, LOW_START);
                add_product(q, high, low, d[0][0], d[1][0]);
            } else {
                product_s8_k16(high, w.a[i][0], w.a[i][1], b[i].x, HIGH_START);
                product_s8_k16(low, w.a[i][0], w.a[i][1], b[i].z, LOW_START);
                add_product(q, high, low, d[0][0], d[1][0]);
                product_s8_k16(high, w.a[i][2], w.a[i][3], b[i].y, HIGH_START);
                product_s8_k16(low, w.a[i][2], w.a[i][3], b[i].w, LOW_START);
                add_product(q, high, low, d[0][LAST], d[1][LAST]);
            }
        }
#pragma unroll
        for (int e = 0; e < 4; e++) sum[e] = __fmaf_rn(q[e], (e & 1) ? scale.y : scale.x, sum[e]);
    }
};

// Floats: a product of 16 columns with the high and the low part of the activations; F32 weights
// have two parts as well.
template <int PARTS>
INLINE void multiply_halves(const u32 (&a)[4][4], const uint4* b, float (&sum)[4]) {
#pragma unroll
    for (int i = 0; i < 4 / PARTS; i++) {
        u32 high[2] = {b[i].x, b[i].y}, low[2] = {b[i].z, b[i].w};
        mma_f16(sum, a[i * PARTS], high);
        mma_f16(sum, a[i * PARTS], low);
        if (PARTS == 2) mma_f16(sum, a[i * PARTS + PARTS - 1], high);
    }
}
template <>
struct Step<F16> {
    static INLINE void codes(const u8* record, u32, int lane, u32 (&a)[4][4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) plane8(record, i, lane, a[i]);
    }
    static INLINE void multiply(const Weights<F16>& w, const uint4 (&b)[4], float2,
                                float (&sum)[4]) {
        multiply_halves<1>(w.a, b, sum);
    }
};
template <>
struct Step<F32> {
    static INLINE void codes(const u8* record, u32 step, int lane, u32 (&a)[4][4]) {
        Step<F16>::codes(record, step, lane, a);
    }
    static INLINE void multiply(const Weights<F32>& w, const uint4 (&b)[2], float2,
                                float (&sum)[4]) {
        multiply_halves<2>(w.a, b, sum);
    }
};

// sum -= sum_i m_i X_i. m: of each group the minimums of rows g and g + 8; sums: of the columns 2t
// and 2t + 1 the sums of the groups (SUBS = 1), or of the halves of the first two and of the last
// two groups.
template <int SUBS>
INLINE void subtract_minimums(const float (&m)[4][2][SUBS], const float4 (&sums)[2][SUBS],
                              float (&sum)[4]) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
#pragma unroll
        for (int k = 0; k < 4 * SUBS; k++) {
            float4 four = sums[e & 1][k / 4];
            float x = k % 4 == 0 ? four.x : k % 4 == 1 ? four.y : k % 4 == 2 ? four.z : four.w;
            sum[e] = __fmaf_rn(-m[k / SUBS][e >> 1][k % SUBS], x, sum[e]);
        }
    }
}
