// What the paged attention kernels share: KV pages, their conversion to 16 bits, swizzled tiles.
#pragma once
#include "sequences.cuh"
#include "tensor_core.cuh"

constexpr int PAGE_TOKENS = 16;

// Storage of keys and values; numbers as in backend-cuda/src/ops/paged_attention.rs.
constexpr int KV_F32 = 0, KV_F16 = 1, KV_BF16 = 2, KV_Q8_0 = 3, KV_FP8 = 4;

constexpr __device__ int kv_value_bytes(int kind) {
    return kind == KV_F32 ? 4 : kind == KV_F16 || kind == KV_BF16 ? 2 : 1;
}
constexpr __device__ bool kv_quantised(int kind) { return kind == KV_Q8_0 || kind == KV_FP8; }

// One head's 16 tokens in a page: values [16][D], and for q8_0 scales [16][D / group] in f16.
struct PlaneAddress {
    const unsigned char* values;
    const unsigned char* scales;
};

// Address of head `head` of plane `plane` (0 keys, 1 values) of a block of the pool.
template <int D, int KIND>
__device__ __forceinline__ PlaneAddress plane_address(const unsigned char* pages, long long block,
                                                      int kv_heads, int plane, int head) {
    constexpr int VALUES = PAGE_TOKENS * D;
    constexpr int GROUP = D < 32 ? D : 32;
    constexpr int SCALE_BYTES = KIND == KV_Q8_0 ? VALUES / GROUP * 2 : 0;
    constexpr int PLANE_BYTES = VALUES * kv_value_bytes(KIND);
    const unsigned char* base = pages + block * (2LL * kv_heads * (PLANE_BYTES + SCALE_BYTES));
    const long long index = plane * kv_heads + head;
    return {base + index * PLANE_BYTES,
            base + 2LL * kv_heads * PLANE_BYTES + index * SCALE_BYTES};
}

// Four stored bytes, in order, as four f16 values.
template <int KIND>
__device__ __forceinline__ uint2 bytes_to_f16(uint bytes, uint scale_pair) {
    if (KIND == KV_Q8_0) {
        // 0x6400 + u is 1024 + u in f16; the sign bit flipped makes u = value + 128. Exact.
        const uint shifted = bytes ^ 0x80808080u;
        const uint low = sub_f16x2(__byte_perm(shifted, 0x64646464u, 0x4140), 0x64806480u);
        const uint high = sub_f16x2(__byte_perm(shifted, 0x64646464u, 0x4342), 0x64806480u);
        return make_uint2(mul_f16x2(low, scale_pair), mul_f16x2(high, scale_pair));
    }
    // e4m3 moved under the f16 exponent reads 2^-8 of its value, subnormals included.
    const uint low = __byte_perm(bytes, 0, 0x1404), high = __byte_perm(bytes, 0, 0x3424);
    const uint low_half = (low & 0x80008000u) | ((low & 0x7f007f00u) >> 1);
    const uint high_half = (high & 0x80008000u) | ((high & 0x7f007f00u) >> 1);
    return make_uint2(mul_f16x2(low_half, 0x5c005c00u), mul_f16x2(high_half, 0x5c005c00u));
}

// Sixteen stored bytes as f16: the first eight values, then the last eight.
template <int KIND>
__device__ __forceinline__ void bytes_to_f16_16(uint4 bytes, uint scale, uint4& first, uint4& last) {
    const uint pair = __byte_perm(scale, 0, 0x1010);
    const uint2 a = bytes_to_f16<KIND>(bytes.x, pair), b = bytes_to_f16<KIND>(bytes.y, pair);
    const uint2 c = bytes_to_f16<KIND>(bytes.z, pair), d = bytes_to_f16<KIND>(bytes.w, pair);
    first = make_uint4(a.x, a.y, b.x, b.y);
    last = make_uint4(c.x, c.y, d.x, d.y);
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile [rows][D] of 16-bit values. The
// exclusive or spreads the eight rows of a matrix load over all banks.
template <int D>
__device__ __forceinline__ int tile_offset(int row, int chunk) {
    return row * (D * 2) + ((chunk ^ (row & 7)) << 4);
}

template <int KIND>
__device__ __forceinline__ uint pack_pair(float low, float high) {
    return KIND == KV_BF16 ? pack_bf16(low, high) : pack_f16(low, high);
}
template <int KIND>
__device__ __forceinline__ float unpack_low(uint pair) {
    return KIND == KV_BF16 ? bf16_to_f32(pair & 0xffffu) : f16_to_f32(pair);
}
template <int KIND>
__device__ __forceinline__ void mma_pair(float (&c)[4], const uint (&a)[4], uint b0, uint b1) {
    if (KIND == KV_BF16) {
        mma_bf16(c, a, b0, b1);
    } else {
        mma_f16(c, a, b0, b1);
    }
}

// Largest and sum over the four lanes that share a row of an accumulator.
__device__ __forceinline__ float row_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ __forceinline__ float row_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
