// Instructions of sm_80 and later that C++ has no name for: matrix products of a warp, and copies
// into shared memory that no register waits for.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;

// c += a b for a 16 x 32 tile `a` and a 32 x 8 tile `b` of signed bytes.
__device__ __forceinline__ void mma_s8_k32(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c += a b for a 16 x 16 tile `a` and a 16 x 8 tile `b` of signed bytes.
__device__ __forceinline__ void mma_s8_k16(int (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

// c += a b for a 16 x 16 tile `a` and a 16 x 8 tile `b` of f16, accumulated in f32.
__device__ __forceinline__ void mma_f16(float (&c)[4], uint4 a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Starts copying 16 bytes of global memory, past L1, to a shared address. Both are multiples of 16.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
    u32 to = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global)
                 : "memory");
}

// Closes the group of copies started since the last call.
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `PENDING` groups of this thread are unfinished.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// The f32 value of f16 bits.
__device__ __forceinline__ float half_value(u32 bits) {
    float value;
    asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(value) : "r"(bits));
    return value;
}

// Two f16, rounded to nearest: `low` in the low half.
__device__ __forceinline__ u32 half_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
