// Layout of weights on the card: the unit that is read, and how a warp takes it apart.
//
// A record holds 16 rows by K columns of one matrix, K = 256 for most types. The records of 16 rows
// follow each other along the columns. Rows and columns past the matrix are zeros. Inside a record
// the codes lie in the order in which `mma.sync` wants them: lane `4 g + t` owns rows g and g + 8,
// and of each group of 32 columns the columns 4t..4t+3 and 16+4t..16+4t+3. A warp thus reads a
// record front to back, 16 bytes a lane, and needs no shuffle. Headers (scales) follow the codes,
// ordered by slot = 2 (row % 8) + row / 8, so that the two rows of a lane are neighbours.
//
// Codes are the same numbers as in the file; the packer is `backend-cuda/src/repack/`.
// A decoder has:
//   K, BYTES   columns and bytes of a record;
//   SUBS       scales of a group of 32 columns: 1, or 2 (one for each 16);
//   MIN        value = d * code - m instead of d * code;
//   codes      signed bytes of group i: a[0], a[1] = rows g, g + 8 at columns 4t; a[2], a[3] at
// 16+4t; scales     d and m of group i for rows g and g + 8.
#pragma once
#include "common.cuh"
#include "codebooks.cuh"

// The f32 value of the f16 in the low half of `bits`.
INLINE float half_value(u32 bits) {
    return f16_bits_to_f32(u16(bits));
}

template <class V>
INLINE V at(const u8* address) {
    return *(const V*)address;
}

// Bytes of w minus n; the codes are below 128 and the differences above -128.
INLINE u32 bytes_minus(u32 w, u32 n) {
    return ((w | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u;
}

// Word `i` of four; folds away where `i` is known.
INLINE u32 word_of(uint4 v, int i) {
    u32 low = (i & 1) ? v.y : v.x, high = (i & 1) ? v.w : v.z;
    return (i & 2) ? high : low;
}

// f16 number `i` of the eight in `v`.
INLINE float half_of(uint4 v, int i) {
    return half_value((word_of(v, i >> 1) >> (16 * (i & 1))) & 0xffff);
}

INLINE void plane8(const u8* plane, int i, int lane, u32 (&a)[4]) {
    uint4 v = at<uint4>(plane + i * 512 + lane * 16);
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
}

// Low nibbles: columns 4t; high nibbles: columns 16 + 4t.
INLINE void plane4_packed(const u8* plane, int i, int lane, u32 (&w)[2]) {
    uint4 v = at<uint4>(plane + (i >> 1) * 512 + lane * 16);
    w[0] = (i & 1) ? v.z : v.x, w[1] = (i & 1) ? v.w : v.y;
}

INLINE void plane4(const u8* plane, int i, int lane, u32 (&a)[4]) {
    u32 w[2];
    plane4_packed(plane, i, lane, w);
    a[0] = w[0] & 0x0f0f0f0f, a[1] = w[1] & 0x0f0f0f0f;
    a[2] = (w[0] >> 4) & 0x0f0f0f0f, a[3] = (w[1] >> 4) & 0x0f0f0f0f;
}

// A byte holds two groups: bits 0-1 and 2-3 the even one, 4-5 and 6-7 the odd one.
INLINE void plane2(const u8* plane, int i, int lane, u32 (&a)[4]) {
    uint4 v = at<uint4>(plane + (i >> 2) * 512 + lane * 16);
    u32 r0 = (i & 2) ? v.z : v.x, r1 = (i & 2) ? v.w : v.y;
    int shift = 4 * (i & 1);
    a[0] = (r0 >> shift) & 0x03030303, a[1] = (r1 >> shift) & 0x03030303;
    a[2] = (r0 >> (shift + 2)) & 0x03030303, a[3] = (r1 >> (shift + 2)) & 0x03030303;
}

// A byte holds four groups of two bits.
INLINE void plane1(const u8* plane, int i, int lane, u32 (&a)[4]) {
    uint4 v = at<uint4>(plane + lane * 16);
    u32 r0 = (i & 4) ? v.z : v.x, r1 = (i & 4) ? v.w : v.y;
    int shift = 2 * (i & 3);
    a[0] = (r0 >> shift) & 0x01010101, a[1] = (r1 >> shift) & 0x01010101;
    a[2] = (r0 >> (shift + 1)) & 0x01010101, a[3] = (r1 >> (shift + 1)) & 0x01010101;
}

// Replaces the eight nibbles of `w` by bytes of a table of 16: `low` those of the low nibbles.
INLINE void table16(u32 w, uint4 table, u32& low, u32& high) {
    u32 index = w & 0x77777777, upper = (w & 0x88888888) >> 1;
    u32 p = __byte_perm(__byte_perm(table.x, table.y, index), __byte_perm(table.z, table.w, index),
                        0x3210 | (upper & 0xffff));
    index >>= 16, upper >>= 16;
    u32 q = __byte_perm(__byte_perm(table.x, table.y, index), __byte_perm(table.z, table.w, index),
                        0x3210 | upper);
    low = __byte_perm(p, q, 0x6420);
    high = __byte_perm(p, q, 0x7531);
}

// The values of IQ4_NL and IQ4_XS, and the doubled ones of MXFP4, as signed bytes.
INLINE uint4 iq4_table() {
    return make_uint4(0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535);
}
INLINE uint4 mxfp4_table() {
    return make_uint4(0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc);
}

// Negates the bytes of `w` (none is 0) whose bit is set in the sign mask of index `sign`, of which
// `half` chooses the lower or upper four. Bit 7 of the mask is the parity of the index.
INLINE u32 with_signs(u32 w, u32 sign, int half) {
    u32 mask = sign | ((u32)(__popc(sign) & 1) << 7);
    u32 ones = (((mask >> (4 * half)) & 15) * 0x00204081u) & 0x01010101u;
    return (w ^ (ones * 255)) + ones;
}

struct Q8_0 {
    enum { K = 128, BYTES = 2176, SUBS = 1, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        plane8(record, i, lane, a);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&)[2][1]) {
        uint4 v = at<uint4>(record + 2048 + g * 16);
        d[0][0] = half_of(v, i), d[1][0] = half_of(v, 4 + i);
    }
};

// Q4_0, Q4_1, Q5_0 and Q5_1: FIFTH = a plane of fifth bits, OFFSET = what the code is reduced by.
template <int FIFTH, int OFFSET, int MINIMUM>
struct Legacy {
    enum { HEADER = 2048 + 512 * FIFTH, ROW = MINIMUM ? 32 : 16 };
    enum { K = 256, BYTES = HEADER + 16 * ROW, SUBS = 1, MIN = MINIMUM };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        plane4(record, i, lane, a);
        u32 b[4];
        if (FIFTH) plane1(record + 2048, i, lane, b);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (FIFTH) a[j] |= b[j] << 4;
            if (OFFSET) a[j] = bytes_minus(a[j], OFFSET);
        }
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&m)[2][1]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const u8* row = record + HEADER + (2 * g + r) * ROW;
            d[r][0] = half_of(at<uint4>(row), i);
            if (MINIMUM) m[r][0] = -half_of(at<uint4>(row + 16), i);
        }
    }
};
typedef Legacy<0, 8, 0> Q4_0;
typedef Legacy<0, 0, 1> Q4_1;
typedef Legacy<1, 16, 0> Q5_0;
typedef Legacy<1, 0, 1> Q5_1;

struct IQ4_NL {
    enum { K = 256, BYTES = 2304, SUBS = 1, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        u32 w[2];
        plane4_packed(record, i, lane, w);
        table16(w[0], iq4_table(), a[0], a[2]);
        table16(w[1], iq4_table(), a[1], a[3]);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&)[2][1]) {
        d[0][0] = half_of(at<uint4>(record + 2048 + g * 32), i);
        d[1][0] = half_of(at<uint4>(record + 2064 + g * 32), i);
    }
};

// Header of a row: d f16, high bits of the scales u16, their low nibbles u32.
struct IQ4_XS {
    enum { K = 256, BYTES = 2176, SUBS = 1, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        IQ4_NL::codes(record, i, lane, a);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&)[2][1]) {
        uint4 v = at<uint4>(record + 2048 + g * 16);
        d[0][0] = scale(v.x, v.y, i), d[1][0] = scale(v.z, v.w, i);
    }
    static INLINE float scale(u32 head, u32 low, int i) {
        u32 s = ((low >> (4 * i)) & 15) | (((head >> (16 + 2 * i)) & 3) << 4);
        return half_value(head & 0xffff) * (float)((int)s - 32);
    }
};

// Header of a row: 8 exponents. The codes are doubled values, so the scale is 2^(e - 128); below
// e = 2 that is subnormal.
struct MXFP4 {
    enum { K = 256, BYTES = 2176, SUBS = 1, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        u32 w[2];
        plane4_packed(record, i, lane, w);
        table16(w[0], mxfp4_table(), a[0], a[2]);
        table16(w[1], mxfp4_table(), a[1], a[3]);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&)[2][1]) {
        uint4 v = at<uint4>(record + 2048 + g * 16);
        d[0][0] = scale(((i & 4) ? v.y : v.x) >> (8 * (i & 3)));
        d[1][0] = scale(((i & 4) ? v.w : v.z) >> (8 * (i & 3)));
    }
    static INLINE float scale(u32 word) {
        u32 e = word & 255;
        return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
};

// Header of a row: d and dmin f16; three words A, B, C. The low 6 bits of their bytes are scales
// 0-3, scales 4-7 and minimums 0-3; the upper 2 bits, from A to C, form minimums 4-7. So four
// numbers are taken apart at a time.
template <int FIFTH>
struct Q45_K {
    enum { HEADER = 2048 + 512 * FIFTH };
    enum { K = 256, BYTES = HEADER + 256, SUBS = 1, MIN = 1 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        plane4(record, i, lane, a);
        u32 b[4];
        if (FIFTH) plane1(record + 2048, i, lane, b);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (FIFTH) a[j] |= b[j] << 4;
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&m)[2][1]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint4 v = at<uint4>(record + HEADER + (2 * g + r) * 16);
            u32 last = ((v.y >> 6) & 0x03030303) | ((v.z >> 4) & 0x0c0c0c0c);
            last |= (v.w >> 2) & 0x30303030;
            u32 sc = ((i & 4) ? v.z : v.y) & 0x3f3f3f3f;
            u32 mn = (i & 4) ? last : v.w & 0x3f3f3f3f;
            sc = (sc >> (8 * (i & 3))) & 255, mn = (mn >> (8 * (i & 3))) & 255;
            d[r][0] = half_value(v.x & 0xffff) * (float)sc;
            m[r][0] = half_value(v.x >> 16) * (float)mn;
        }
    }
};
typedef Q45_K<0> Q4_K;
typedef Q45_K<1> Q5_K;

// Headers: 16 scales i8 of each row, then d f16 of each row.
struct Q6_K {
    enum { K = 256, BYTES = 3360, SUBS = 2, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        plane4(record, i, lane, a);
        u32 b[4];
        plane2(record + 2048, i, lane, b);
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] = bytes_minus(a[j] | (b[j] << 4), 32);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][2], float (&)[2][2]) {
        u32 heads = at<u32>(record + 3328 + g * 4);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float head = half_value((heads >> (16 * r)) & 0xffff);
            uint4 v = at<uint4>(record + 3072 + (2 * g + r) * 16);
            u32 pair = word_of(v, i >> 1) >> (16 * (i & 1));
            d[r][0] = head * (float)(i8)(pair & 255);
            d[r][1] = head * (float)(i8)((pair >> 8) & 255);
        }
    }
};

// Header of a row: low nibbles of the 16 scales (two words), their upper two bits, d f16.
struct Q3_K {
    enum { K = 256, BYTES = 1792, SUBS = 2, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        plane2(record, i, lane, a);
        u32 b[4];
        plane1(record + 1024, i, lane, b);
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] = bytes_minus(a[j] | (b[j] << 2), 4);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][2], float (&)[2][2]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint4 v = at<uint4>(record + 1536 + (2 * g + r) * 16);
            u32 low = ((i & 4) ? v.y : v.x) >> (8 * (i & 3)), high = v.z >> (4 * i);
            float head = half_value(v.w & 0xffff);
            d[r][0] = head * (float)((int)((low & 15) | ((high & 3) << 4)) - 32);
            d[r][1] = head * (float)((int)(((low >> 4) & 15) | (((high >> 2) & 3) << 4)) - 32);
        }
    }
};

// Headers: 16 bytes of each row (scale in the low nibble, minimum in the high one), then d and dmin
// f16 of each row.
struct Q2_K {
    enum { K = 256, BYTES = 1344, SUBS = 2, MIN = 1 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        plane2(record, i, lane, a);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][2], float (&m)[2][2]) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint4 v = at<uint4>(record + 1024 + (2 * g + r) * 16);
            u32 pair = word_of(v, i >> 1) >> (16 * (i & 1));
            u32 heads = at<u32>(record + 1280 + (2 * g + r) * 4);
            float head = half_value(heads & 0xffff), minimum = half_value(heads >> 16);
            d[r][0] = head * (float)(pair & 15);
            d[r][1] = head * (float)((pair >> 8) & 15);
            m[r][0] = minimum * (float)((pair >> 4) & 15);
            m[r][1] = minimum * (float)((pair >> 12) & 15);
        }
    }
};

// The codebook types keep the file's indices; all lanes of a row read the same words.
//
// Codes: of each group and row, 4 grid indices, then 4 sign indices of 7 bits and a scale of 4.
// Header: d f16 of each row.
struct IQ2_XXS {
    enum { K = 256, BYTES = 1056, SUBS = 1, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        int t = lane & 3;
        uint4 v = at<uint4>(record + i * 128 + (lane >> 2) * 16);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int l = 2 * h + (t >> 1);
            a[2 * h] = word(v.x >> (8 * l), v.y >> (7 * l), t & 1);
            a[2 * h + 1] = word(v.z >> (8 * l), v.w >> (7 * l), t & 1);
        }
    }
    static INLINE u32 word(u32 index, u32 sign, int half) {
        const u32* grid = reinterpret_cast<const u32*>(IQ2_XXS_GRID);
        return with_signs(__ldg(grid + (index & 255) * 2 + half), sign & 127, half);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&)[2][1]) {
        uint4 v = at<uint4>(record + i * 128 + g * 16);
        u32 heads = at<u32>(record + 1024 + g * 4);
        d[0][0] = half_value(heads & 0xffff) * (0.5f + (float)(v.y >> 28)) * 0.25f;
        d[1][0] = half_value(heads >> 16) * (0.5f + (float)(v.w >> 28)) * 0.25f;
    }
};

// Codes: of each group and row, 4 words of a grid index (9 bits) and a sign index (7 bits).
// Headers: 8 bytes of scales of each row, a nibble for 16 columns; d f16 of each row.
struct IQ2_XS {
    enum { K = 256, BYTES = 1184, SUBS = 2, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        int t = lane & 3, shift = 16 * (t >> 1);
        uint4 v = at<uint4>(record + i * 128 + (lane >> 2) * 16);
        a[0] = word(v.x >> shift, t & 1), a[1] = word(v.z >> shift, t & 1);
        a[2] = word(v.y >> shift, t & 1), a[3] = word(v.w >> shift, t & 1);
    }
    static INLINE u32 word(u32 w, int half) {
        const u32* grid = reinterpret_cast<const u32*>(IQ2_XS_GRID);
        return with_signs(__ldg(grid + (w & 511) * 2 + half), (w >> 9) & 127, half);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][2], float (&)[2][2]) {
        uint4 v = at<uint4>(record + 1024 + g * 16);
        u32 heads = at<u32>(record + 1152 + g * 4);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            u32 byte = word_of(v, 2 * r + (i >> 2)) >> (8 * (i & 3));
            float head = half_value((heads >> (16 * r)) & 0xffff);
            d[r][0] = head * (0.5f + (float)(byte & 15)) * 0.25f;
            d[r][1] = head * (0.5f + (float)((byte >> 4) & 15)) * 0.25f;
        }
    }
};

// Codes: of each group, lane and row, the grid indices of columns 4t and 16 + 4t. Headers: of each
// group and row, 4 sign indices and a scale as in IQ2_XXS; d f16 of each row.
struct IQ3_XXS {
    enum { K = 256, BYTES = 1568, SUBS = 1, MIN = 0 };
    static INLINE void codes(
        const u8* record, int i, int lane, u32 (&a)[4]) {
        int t = lane & 3;
        u32 index = word_of(at<uint4>(record + (i >> 2) * 512 + lane * 16), i & 3);
        uint2 v = at<uint2>(record + 1024 + i * 64 + (lane >> 2) * 8);
        int low = 7 * (t >> 1), high = 14 + low;
        a[0] = with_signs(__ldg(IQ3_XXS_GRID + (index & 255)), (v.x >> low) & 127, t & 1);
        a[2] = with_signs(__ldg(IQ3_XXS_GRID + ((index >> 8) & 255)), (v.x >> high) & 127, t & 1);
        a[1] = with_signs(__ldg(IQ3_XXS_GRID + ((index >> 16) & 255)), (v.y >> low) & 127, t & 1);
        a[3] = with_signs(__ldg(IQ3_XXS_GRID + (index >> 24)), (v.y >> high) & 127, t & 1);
    }
    static INLINE void scales(
        const u8* record, int i, int g, float (&d)[2][1], float (&)[2][1]) {
        uint2 v = at<uint2>(record + 1024 + i * 64 + g * 8);
        u32 heads = at<u32>(record + 1536 + g * 4);
        d[0][0] = half_value(heads & 0xffff) * (0.5f + (float)(v.x >> 28)) * 0.5f;
        d[1][0] = half_value(heads >> 16) * (0.5f + (float)(v.y >> 28)) * 0.5f;
    }
};

// Floating-point records hold the A operands of f16 products, 16 columns by 16 rows in 512 bytes:
// of lane 4 g + t the columns 4t, 4t+1 of rows g and g + 8, then 4t+2, 4t+3 of both. A row was
// multiplied by a power of two (1 for F16) that `row_scale` undoes. F32 is the sum of two f16: all
// high parts of 16 columns, then the low ones.
struct F16 {
    enum { K = 64, BYTES = 2048, PARTS = 1 };
};
struct F32 {
    enum { K = 32, BYTES = 2048, PARTS = 2 };
};
