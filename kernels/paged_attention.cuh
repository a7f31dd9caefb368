// What the paged attention kernels share: KV pages, their conversion to 16 bits, swizzled tiles.
#pragma once
#include "common.cuh"
#include "sequences.cuh"

constexpr int PAGE_TOKENS = 16;
#define MINUS_INFINITY __int_as_float(0xff800000)

// Storage of keys and values; numbers as in backend-cuda/src/ops/paged_attention.rs.
constexpr int KV_F32 = 0, KV_F16 = 1, KV_BF16 = 2, KV_Q8_0 = 3, KV_FP8 = 4;

constexpr __device__ int kv_value_bytes(int kind) {
    return kind == KV_F32 ? 4 : kind == KV_F16 || kind == KV_BF16 ? 2 : 1;
}
constexpr __device__ bool kv_quantised(int kind) { return kind == KV_Q8_0 || kind == KV_FP8; }

// One head's 16 tokens in a page: values [16][D], and for q8_0 scales [16][D / group] in f16.
struct PlaneAddress {
    const u8* values;
    const u8* scales;
};

// Address of head `head` of plane `plane` (0 keys, 1 values) of a block of the pool.
template <int D, int KIND>
INLINE PlaneAddress plane_address(const u8* pages, i64 block,
                                                      int kv_heads, int plane, int head) {
    constexpr int VALUES = PAGE_TOKENS * D;
    constexpr int GROUP = D < 32 ? D : 32;
    constexpr int SCALE_BYTES = KIND == KV_Q8_0 ? VALUES / GROUP * 2 : 0;
    constexpr int PLANE_BYTES = VALUES * kv_value_bytes(KIND);
    const u8* base = pages + block * (2LL * kv_heads * (PLANE_BYTES + SCALE_BYTES));
    const i64 index = plane * kv_heads + head;
    return {base + index * PLANE_BYTES,
            base + 2LL * kv_heads * PLANE_BYTES + index * SCALE_BYTES};
}

// Four stored bytes, in order, as four f16 values.
template <int KIND>
INLINE uint2 bytes_to_f16(u32 bytes, u32 scale_pair) {
    constexpr u32 MINUS_ZERO = 0x80008000u, ONE = 0x3c003c00u, MINUS_1152 = 0xe480e480u;
    if (KIND == KV_Q8_0) {
        // 0x6400 + u is 1024 + u in f16; the sign bit flipped makes u = value + 128. Exact.
        const u32 shifted = bytes ^ 0x80808080u;
        const u32 low = fma_f16x2(__byte_perm(shifted, 0x64646464u, 0x4140), ONE, MINUS_1152);
        const u32 high = fma_f16x2(__byte_perm(shifted, 0x64646464u, 0x4342), ONE, MINUS_1152);
        return make_uint2(fma_f16x2(low, scale_pair, MINUS_ZERO),
                          fma_f16x2(high, scale_pair, MINUS_ZERO));
    }
    // e4m3 moved under the f16 exponent reads 2^-8 of its value, subnormals included.
    const u32 low = __byte_perm(bytes, 0, 0x1404), high = __byte_perm(bytes, 0, 0x3424);
    const u32 low_half = (low & 0x80008000u) | ((low & 0x7f007f00u) >> 1);
    const u32 high_half = (high & 0x80008000u) | ((high & 0x7f007f00u) >> 1);
    return make_uint2(fma_f16x2(low_half, 0x5c005c00u, MINUS_ZERO),
                      fma_f16x2(high_half, 0x5c005c00u, MINUS_ZERO));
}

// Sixteen stored bytes as f16: the first eight values, then the last eight.
template <int KIND>
INLINE void bytes_to_f16_16(uint4 bytes, u32 scale, uint4& first, uint4& last) {
    const u32 pair = __byte_perm(scale, 0, 0x1010);
    const uint2 a = bytes_to_f16<KIND>(bytes.x, pair), b = bytes_to_f16<KIND>(bytes.y, pair);
    const uint2 c = bytes_to_f16<KIND>(bytes.z, pair), d = bytes_to_f16<KIND>(bytes.w, pair);
    first = make_uint4(a.x, a.y, b.x, b.y);
    last = make_uint4(c.x, c.y, d.x, d.y);
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile [rows][D] of 16-bit values. The
// exclusive or spreads the eight rows of a matrix load over all banks.
template <int D>
INLINE int tile_offset(int row, int chunk) {
    return row * (D * 2) + ((chunk ^ (row & 7)) << 4);
}

template <int KIND>
INLINE u32 pack_pair(float low, float high) {
    return KIND == KV_BF16 ? pack_bf16(low, high) : pack_f16(low, high);
}
template <int KIND>
INLINE float2 unpack_pair(u32 pair) {
    return KIND == KV_BF16 ? unpack_bf16(pair) : unpack_f16(pair);
}
template <int KIND>
INLINE void mma_pair(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const u32 b[2] = {b0, b1};
    if (KIND == KV_BF16) {
        mma_bf16(c, a, b);
    } else {
        mma_f16(c, a, b);
    }
}
INLINE float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Sixteen bytes to shared memory, or zeros (the source must be readable all the same).
INLINE void copy_async_16(void* target, const void* source, bool valid = true) {
    cp_async16(target, source, valid ? 16 : 0);
}
