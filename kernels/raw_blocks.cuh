// Values of storage blocks as they lie in a file (formulas: docs of the GGUF formats). Products and
// sums are rounded one by one, so that a value has the bits that the host's decoder gives it.
#pragma once
#include "common.cuh"
#include "codebooks.cuh"

// Numbers are the type ids of GGUF.
enum : u32 {
    TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q4_1 = 3, TYPE_Q5_0 = 6, TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8, TYPE_Q2_K = 10, TYPE_Q3_K = 11, TYPE_Q4_K = 12, TYPE_Q5_K = 13, TYPE_Q6_K = 14,
    TYPE_IQ2_XXS = 16, TYPE_IQ2_XS = 17, TYPE_IQ3_XXS = 18, TYPE_IQ4_NL = 20, TYPE_IQ4_XS = 23,
    TYPE_BF16 = 30, TYPE_MXFP4 = 39
};

template <u32 TYPE>
struct RawBlock;
#define RAW_BLOCK(type, values, bytes)                    \
    template <>                                           \
    struct RawBlock<type> {                               \
        static constexpr u32 VALUES = values, BYTES = bytes; \
    };
RAW_BLOCK(TYPE_F32, 1, 4)
RAW_BLOCK(TYPE_F16, 1, 2)
RAW_BLOCK(TYPE_BF16, 1, 2)
RAW_BLOCK(TYPE_Q4_0, 32, 18)
RAW_BLOCK(TYPE_Q4_1, 32, 20)
RAW_BLOCK(TYPE_Q5_0, 32, 22)
RAW_BLOCK(TYPE_Q5_1, 32, 24)
RAW_BLOCK(TYPE_Q8_0, 32, 34)
RAW_BLOCK(TYPE_IQ4_NL, 32, 18)
RAW_BLOCK(TYPE_MXFP4, 32, 17)
RAW_BLOCK(TYPE_Q2_K, 256, 84)
RAW_BLOCK(TYPE_Q3_K, 256, 110)
RAW_BLOCK(TYPE_Q4_K, 256, 144)
RAW_BLOCK(TYPE_Q5_K, 256, 176)
RAW_BLOCK(TYPE_Q6_K, 256, 210)
RAW_BLOCK(TYPE_IQ2_XXS, 256, 66)
RAW_BLOCK(TYPE_IQ2_XS, 256, 74)
RAW_BLOCK(TYPE_IQ3_XXS, 256, 98)
RAW_BLOCK(TYPE_IQ4_XS, 256, 136)

INLINE float raw_half(const u8* p) {
    return f16_bits_to_f32(u16(load_u16(p)));
}
// d * q - m without contraction to a fused operation.
INLINE float scaled(float d, i32 q) {
    return __fmul_rn(d, float(q));
}
INLINE float with_sign(float x, u32 negative) {
    return __uint_as_float(__float_as_uint(x) ^ (negative << 31));
}
// Nibble of element i of a 32-wide block.
INLINE i32 nibble32(const u8* qs, u32 i) {
    return (qs[i % 16] >> (i / 16 * 4)) & 15;
}
INLINE i32 fifth_bit(const u8* qh, u32 i) {
    return ((qh[i / 8] >> (i % 8)) & 1) << 4;
}
// 6-bit scale and minimum of sub-block j of Q4_K and Q5_K.
INLINE void scale_minimum(const u8* scales, u32 j, i32& scale, i32& minimum) {
    if (j < 4) {
        scale = scales[j] & 63;
        minimum = scales[j + 4] & 63;
    } else {
        scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4);
        minimum = (scales[j + 4] >> 4) | (scales[j] >> 6 << 4);
    }
}
// Four 7-bit sign indices and a 4-bit scale in one word.
INLINE float iq_scale(float d, u32 code, float factor) {
    return __fmul_rn(__fmul_rn(d, 0.5f + float(code)), factor);
}

// Value `i` of a block that starts at `b`.
template <u32 TYPE>
INLINE float raw_value(const u8* b, u32 i) {
    if constexpr (TYPE == TYPE_F32) {
        return __uint_as_float(load_u32(b));
    } else if constexpr (TYPE == TYPE_F16) {
        return raw_half(b);
    } else if constexpr (TYPE == TYPE_BF16) {
        return __uint_as_float(load_u16(b) << 16);
    } else if constexpr (TYPE == TYPE_Q4_0) {
        return scaled(raw_half(b), nibble32(b + 2, i) - 8);
    } else if constexpr (TYPE == TYPE_Q4_1) {
        return __fadd_rn(scaled(raw_half(b), nibble32(b + 4, i)), raw_half(b + 2));
    } else if constexpr (TYPE == TYPE_Q5_0) {
        return scaled(raw_half(b), (nibble32(b + 6, i) | fifth_bit(b + 2, i)) - 16);
    } else if constexpr (TYPE == TYPE_Q5_1) {
        i32 q = nibble32(b + 8, i) | fifth_bit(b + 4, i);
        return __fadd_rn(scaled(raw_half(b), q), raw_half(b + 2));
    } else if constexpr (TYPE == TYPE_Q8_0) {
        return scaled(raw_half(b), i8(b[2 + i]));
    } else if constexpr (TYPE == TYPE_IQ4_NL) {
        return scaled(raw_half(b), IQ4_NL_VALUES[nibble32(b + 2, i)]);
    } else if constexpr (TYPE == TYPE_MXFP4) {
        // Half the scale for doubled values; the two smallest are subnormal.
        u32 e = b[0];
        float half_scale = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        return scaled(half_scale, MXFP4_DOUBLED_VALUES[nibble32(b + 1, i)]);
    } else if constexpr (TYPE == TYPE_Q2_K) {
        u32 sub = i / 16, half = i / 128, plane = i % 128 / 32, l = i % 32;
        i32 q = (b[16 + 32 * half + l] >> (2 * plane)) & 3;
        float scale = scaled(raw_half(b + 80), b[sub] & 15);
        float minimum = scaled(raw_half(b + 82), b[sub] >> 4);
        return __fsub_rn(scaled(scale, q), minimum);
    } else if constexpr (TYPE == TYPE_Q3_K) {
        u32 sub = i / 16, half = i / 128, plane = i % 128 / 32, l = i % 32;
        const u8* scales = b + 96;
        i32 low = (scales[sub % 8] >> (sub / 8 * 4)) & 15;
        i32 high = (scales[8 + sub % 4] >> (sub / 4 * 2)) & 3;
        float scale = scaled(raw_half(b + 108), (low | high << 4) - 32);
        i32 q = (b[32 + 32 * half + l] >> (2 * plane)) & 3;
        i32 bit = (b[l] >> (4 * half + plane)) & 1;
        return scaled(scale, q + 4 * bit - 4);
    } else if constexpr (TYPE == TYPE_Q4_K || TYPE == TYPE_Q5_K) {
        u32 sub = i / 32, l = i % 32;
        const u8* qs = b + (TYPE == TYPE_Q4_K ? 16 : 48);
        i32 q = (qs[32 * (sub / 2) + l] >> (sub % 2 * 4)) & 15;
        if constexpr (TYPE == TYPE_Q5_K) {
            q |= ((b[16 + l] >> sub) & 1) << 4;
        }
        i32 scale, minimum;
        scale_minimum(b + 4, sub, scale, minimum);
        float product = scaled(scaled(raw_half(b), scale), q);
        return __fsub_rn(product, scaled(raw_half(b + 2), minimum));
    } else if constexpr (TYPE == TYPE_Q6_K) {
        u32 half = i / 128, quarter = i % 128 / 32, l = i % 32;
        i32 low = (b[64 * half + 32 * (quarter % 2) + l] >> (quarter / 2 * 4)) & 15;
        i32 high = (b[128 + 32 * half + l] >> (2 * quarter)) & 3;
        float scale = scaled(raw_half(b + 208), i8(b[192 + i / 16]));
        return scaled(scale, (low | high << 4) - 32);
    } else if constexpr (TYPE == TYPE_IQ2_XXS) {
        const u8* group = b + 2 + 8 * (i / 32);
        u32 aux = load_u32(group + 4), l = i % 32 / 8;
        float scale = iq_scale(raw_half(b), aux >> 28, 0.25f);
        u32 magnitude = u32(IQ2_XXS_GRID[group[l]] >> (8 * (i % 8))) & 255;
        u32 signs = SIGNS[(aux >> (7 * l)) & 127];
        return with_sign(scaled(scale, i32(magnitude)), (signs >> (i % 8)) & 1);
    } else if constexpr (TYPE == TYPE_IQ2_XS) {
        u32 row = i / 8, code = load_u16(b + 2 + 2 * row);
        u32 nibble = (b[66 + row / 4] >> (row % 4 / 2 * 4)) & 15;
        float scale = iq_scale(raw_half(b), nibble, 0.25f);
        u32 magnitude = u32(IQ2_XS_GRID[code & 511] >> (8 * (i % 8))) & 255;
        return with_sign(scaled(scale, i32(magnitude)), (SIGNS[code >> 9] >> (i % 8)) & 1);
    } else if constexpr (TYPE == TYPE_IQ3_XXS) {
        u32 group = i / 32, l = i % 32 / 8;
        u32 aux = load_u32(b + 66 + 4 * group);
        float scale = iq_scale(raw_half(b), aux >> 28, 0.5f);
        u32 magnitude = (IQ3_XXS_GRID[b[2 + i / 4]] >> (8 * (i % 4))) & 255;
        u32 signs = SIGNS[(aux >> (7 * l)) & 127];
        return with_sign(scaled(scale, i32(magnitude)), (signs >> (i % 8)) & 1);
    } else {
        static_assert(TYPE == TYPE_IQ4_XS, "a storage type without a decoder");
        u32 group = i / 32;
        i32 low = (b[4 + group / 2] >> (group % 2 * 4)) & 15;
        i32 high = (load_u16(b + 2) >> (2 * group)) & 3;
        float scale = scaled(raw_half(b), (low | high << 4) - 32);
        return scaled(scale, IQ4_NL_VALUES[nibble32(b + 8 + 16 * group, i % 32)]);
    }
}
