// Shared by all kernels: types, conversions, wide loads, tensor-core and async-copy wrappers, warp
// and block reductions. NVRTC sees no toolkit header, so everything is spelled out here.
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
static_assert(sizeof(u64) == 8 && sizeof(u32) == 4 && sizeof(u16) == 2, "integer sizes");

// Bit patterns of 16-bit floats.
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

#define KERNEL extern "C" __global__ void
// A kernel launched with up to `threads` a block: bounds its registers.
#define KERNEL_OF(threads) extern "C" __global__ void __launch_bounds__(threads)
#define INLINE __device__ __forceinline__

constexpr u32 WARP = 32;
constexpr u32 FULL = 0xffffffffu;

// ---- conversions --------------------------------------------------------------------------------

INLINE float to_f32(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
INLINE float to_f32(bf16 x) {
    return __uint_as_float(u32(x.bits) << 16);
}
INLINE float to_f32(float x) {
    return x;
}
INLINE float f16_bits_to_f32(u16 bits) {
    return to_f32(f16{bits});
}
// Round to nearest even.
INLINE f16 to_f16(float x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
INLINE bf16 to_bf16(float x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
// Two values in one register, `low` in the low half.
INLINE u32 pack_f16(float low, float high) {
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
INLINE u32 pack_bf16(float low, float high) {
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
INLINE float2 unpack_f16(u32 pair) {
    return make_float2(f16_bits_to_f32(u16(pair)), f16_bits_to_f32(u16(pair >> 16)));
}
INLINE float2 unpack_bf16(u32 pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
// Packed half arithmetic: d = a * b + c on both halves.
INLINE u32 fma_f16x2(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// 8-bit float e4m3 ("fn": no infinity, 0x7f and 0xff are NaN), by bit operations so that every
// architecture gives the same result.
INLINE float e4m3_to_f32(u8 bits) {
    u32 sign = u32(bits & 0x80u) << 24;
    u32 magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) {
        return __uint_as_float(sign | 0x7fc00000u);
    }
    // Shifted into place the exponent is biased by 7 instead of 127; the product repairs it, and
    // makes subnormals exact as well.
    return __uint_as_float(sign | (magnitude << 20)) * 0x1p120f;
}
// Round to nearest even, saturating at 448.
INLINE u8 f32_to_e4m3(float x) {
    u32 bits = __float_as_uint(x);
    u8 sign = u8((bits >> 24) & 0x80u);
    float magnitude = fabsf(x);
    if (!(magnitude <= 3.4028234e38f)) {
        return magnitude != magnitude ? u8(sign | 0x7fu) : u8(sign | 0x7eu);
    }
    if (magnitude >= 448.0f) {
        return u8(sign | 0x7eu);
    }
    if (magnitude < 0x1p-6f) {
        // Subnormal: multiples of 2^-9; 8 of them are the first normal number, same encoding.
        return u8(sign | u8(rintf(magnitude * 512.0f)));
    }
    u32 m = __float_as_uint(magnitude);
    m += 0x7ffffu + ((m >> 20) & 1u);
    u32 code = (m >> 20) - (120u << 3);
    return u8(sign | u8(code > 0x7eu ? 0x7eu : code));
}

// ---- functions ----------------------------------------------------------------------------------

INLINE float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}
INLINE float silu(float x) {
    return x / (1.0f + expf(-x));
}
INLINE float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

// ---- memory -------------------------------------------------------------------------------------

// Weights are read once per step: streaming loads leave the caches to activations.
INLINE uint4 load_stream(const void* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
INLINE uint2 load_stream8(const void* p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
}
INLINE u32 load_stream4(const void* p) {
    u32 v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
// Little-endian values at addresses without alignment.
INLINE u32 load_u16(const u8* p) {
    return u32(p[0]) | u32(p[1]) << 8;
}
INLINE u32 load_u32(const u8* p) {
    return load_u16(p) | load_u16(p + 2) << 16;
}

INLINE u32 shared_address(const void* p) {
    return u32(__cvta_generic_to_shared(p));
}
// 16 bytes global -> shared without registers; reads `bytes` (0..16) and fills the rest with zeros.
INLINE void cp_async16(void* shared, const void* global, u32 bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
}
INLINE void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `PENDING` of this thread's groups are in flight; a barrier must follow before
// other threads' bytes are read.
template <int PENDING>
INLINE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Programmatic dependent launch (no effect below sm_90): wait for the kernels in front, and let the
// one behind start its prologue. Every thread waits before it touches anything but weights, and
// before it exits, or a later kernel could pass one that has not finished. Pointers to what earlier
// kernels write must not be `const __restrict__`: such loads may be moved in front of the wait.
INLINE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void start_next() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// ---- integer dot and tensor cores ---------------------------------------------------------------

// c + sum of the four products of signed bytes.
INLINE i32 dp4a(i32 a, i32 b, i32 c) {
    return __dp4a(a, b, c);
}

// Four 8x8 matrices of 16-bit values: lane `l` gives the address of row `l % 8` of matrix `l / 8`.
INLINE void ldmatrix_x4(u32 (&d)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared_address(row))
                 : "memory");
}
INLINE void ldmatrix_x4_trans(u32 (&d)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(shared_address(row))
                 : "memory");
}
INLINE void ldmatrix_x2(u32 (&d)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(shared_address(row))
                 : "memory");
}
INLINE void ldmatrix_x2_trans(u32 (&d)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(shared_address(row))
                 : "memory");
}

// D[16,8] += A[16,16] B[16,8]. With g = lane / 4, t = lane % 4:
// a[0] = A[g][2t..], a[1] = A[g+8][2t..], a[2] = A[g][2t+8..], a[3] = A[g+8][2t+8..];
// b[0] = B[2t..][g], b[1] = B[2t+8..][g]; d[0..2] = D[g][2t..], d[2..4] = D[g+8][2t..].
INLINE void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// D[16,8] += A[16,8] B[8,8] in tf32 (f32 bit patterns with 10 bits of mantissa).
// a[0] = A[g][t], a[1] = A[g+8][t], a[2] = A[g][t+4], a[3] = A[g+8][t+4];
// b[0] = B[t][g], b[1] = B[t+4][g]; d as above.
INLINE void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
INLINE u32 to_tf32(float x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
// D[16,8] += A[16,32] B[32,8] on signed bytes, four per register:
// a[0] = A[g][4t..], a[1] = A[g+8][4t..], a[2] = A[g][4t+16..], a[3] = A[g+8][4t+16..];
// b[0] = B[4t..][g], b[1] = B[4t+16..][g]; d as above.
INLINE void mma_s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- reductions ---------------------------------------------------------------------------------
// The order of the additions depends on the geometry alone, so results repeat bit for bit. All
// lanes take part and all receive the result.

template <u32 LANES = WARP>
INLINE float warp_sum(float x) {
#pragma unroll
    for (u32 step = LANES / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(FULL, x, step);
    }
    return x;
}
template <u32 LANES = WARP>
INLINE float warp_max(float x) {
#pragma unroll
    for (u32 step = LANES / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(FULL, x, step));
    }
    return x;
}

// `partial` holds 32 floats of shared memory and may be reused after the next barrier. Blocks are
// whole warps, at most 1024 threads.
INLINE float block_sum(float x, float* partial) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    x = warp_sum(x);
    if (warps == 1) {
        return x;
    }
    if (lane == 0) {
        partial[warp] = x;
    }
    __syncthreads();
    return warp_sum(lane < warps ? partial[lane] : 0.0f);
}
INLINE float block_max(float x, float* partial) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    x = warp_max(x);
    if (warps == 1) {
        return x;
    }
    if (lane == 0) {
        partial[warp] = x;
    }
    __syncthreads();
    return warp_max(lane < warps ? partial[lane] : -__int_as_float(0x7f800000));
}
