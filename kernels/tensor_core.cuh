// Warp matrix products, matrix loads and asynchronous copies (PTX of compute capability 8.0), and
// 16-bit conversions: the toolkit's headers are absent at run-time compilation.
//
// A fragment of m16n8k16, lane = 4 g + t:  A (row g + 8 (i & 1), column 2t + 8 (i >> 1)) in a[i],
// B (row 2t + 8 i, column g) in b[i], C (row g + 8 (i >> 1), column 2t + (i & 1)) in c[i]; a 32-bit
// register of A or B holds two neighbours, the lower index in the lower half.
#pragma once

#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

typedef unsigned int uint;

__device__ __forceinline__ uint pack_f16(float low, float high) {
    uint packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ __forceinline__ uint pack_bf16(float low, float high) {
    uint packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
// Value of the f16 in the lower half of `bits`.
__device__ __forceinline__ float f16_to_f32(uint bits) {
    float value;
    asm("{ .reg .b16 low; cvt.u16.u32 low, %1; cvt.f32.f16 %0, low; }" : "=f"(value) : "r"(bits));
    return value;
}
// Value of the bf16 in the lower half of `bits`.
__device__ __forceinline__ float bf16_to_f32(uint bits) { return __uint_as_float(bits << 16); }

__device__ __forceinline__ uint sub_f16x2(uint a, uint b) {
    uint result;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}
__device__ __forceinline__ uint mul_f16x2(uint a, uint b) {
    uint result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}
__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// c += A B with f16 or bf16 operands and f32 accumulators.
__device__ __forceinline__ void mma_f16(float (&c)[4], const uint (&a)[4], uint b0, uint b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint (&a)[4], uint b0, uint b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint shared_address(const void* pointer) {
    return static_cast<uint>(__cvta_generic_to_shared(pointer));
}
// Four 8 x 8 matrices of 16-bit values; lane l names row l % 8 of matrix l / 8 (16 bytes).
__device__ __forceinline__ void load_matrices(uint (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Copies 16 bytes to shared memory past the registers, or fills them with zeros (the source must
// be a readable address all the same).
__device__ __forceinline__ void copy_async_16(void* target, const void* source, bool valid = true) {
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)),
                 "l"(__cvta_generic_to_global(source)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most PENDING of this thread's newest groups are in flight.
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
