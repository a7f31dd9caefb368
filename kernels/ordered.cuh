// Floats as integers of the same order, with the index of a value below it: the largest key is the
// largest value, and of equal ones the one with the lowest index.
#pragma once
#include "common.cuh"

INLINE u32 ordered(float x) {
    u32 bits = __float_as_uint(x);
    return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
INLINE u64 ordered_key(float x, u32 index) {
    return u64(ordered(x)) << 32 | (0xffffffffu - index);
}
INLINE u32 key_index(u64 key) {
    return 0xffffffffu - u32(key);
}
INLINE float key_value(u64 key) {
    u32 bits = u32(key >> 32);
    return __uint_as_float((bits & 0x80000000u) ? bits & 0x7fffffffu : ~bits);
}
INLINE u64 warp_max_key(u64 key) {
#pragma unroll
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        u64 other = __shfl_xor_sync(FULL, key, step);
        key = other > key ? other : key;
    }
    return key;
}
