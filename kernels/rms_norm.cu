// rms_norm, add_rms_norm
// math:     out[r, c] = x[r, c] / sqrt(mean_c x[r, c]^2 + eps) * w[c]    (Zhang and Sennrich 2019)
//           add_rms_norm: sum += x first, and the norm is that of the new sum.
// shapes:   x, sum, out f32 [rows, columns]; w f32 [columns].
// launch:   grid rows, block of warps, one block a row. Vector form: a thread keeps PER groups of 4
//           columns in registers, so each value is read once. Plain form: any columns and
//           alignment, two passes over the row.
// bytes:    4 * rows * columns * (2, or 4 with the addition) + 4 * columns.
// limits:   vector form: columns and all strides multiples of 4, 16-byte aligned rows,
//           columns <= 4 * PER * block.
// numerics: f32; the sum goes over a thread's values, then lanes, then warps.
#include "common.cuh"

template <u32 PER, bool ADD>
INLINE void rms_norm_vector(const float* x, u64 x_stride, float* sum, u64 sum_stride,
                            const float* w, float eps, float* out, u64 out_stride, u32 columns) {
    __shared__ float partial[WARP];
    u64 row = blockIdx.x;
    u32 groups = columns / 4;
    float4 weight[PER], value[PER];
#pragma unroll
    for (u32 i = 0; i < PER; ++i) {
        u32 group = threadIdx.x + i * blockDim.x;
        weight[i] = group < groups ? reinterpret_cast<const float4*>(w)[group]
                                   : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    wait_for_previous();
    start_next();
    const float4* from = reinterpret_cast<const float4*>(x + row * x_stride);
    float4* total = reinterpret_cast<float4*>(sum + row * sum_stride);
    float4* to = reinterpret_cast<float4*>(out + row * out_stride);
    float square = 0.0f;
#pragma unroll
    for (u32 i = 0; i < PER; ++i) {
        u32 group = threadIdx.x + i * blockDim.x;
        value[i] = group < groups ? from[group] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (ADD && group < groups) {
            float4 old = total[group];
            value[i] = make_float4(old.x + value[i].x, old.y + value[i].y, old.z + value[i].z,
                                   old.w + value[i].w);
            total[group] = value[i];
        }
        square += value[i].x * value[i].x + value[i].y * value[i].y + value[i].z * value[i].z +
                  value[i].w * value[i].w;
    }
    float factor = 1.0f / sqrtf(block_sum(square, partial) / float(columns) + eps);
#pragma unroll
    for (u32 i = 0; i < PER; ++i) {
        u32 group = threadIdx.x + i * blockDim.x;
        if (group < groups) {
            float4 v = value[i], scale = weight[i];
            to[group] = make_float4(v.x * factor * scale.x, v.y * factor * scale.y,
                                    v.z * factor * scale.z, v.w * factor * scale.w);
        }
    }
}

template <bool ADD>
INLINE void rms_norm_plain(const float* x, u64 x_stride, float* sum, u64 sum_stride, const float* w,
                           float eps, float* out, u64 out_stride, u32 columns) {
    __shared__ float partial[WARP];
    wait_for_previous();
    start_next();
    u64 row = blockIdx.x;
    x += row * x_stride;
    out += row * out_stride;
    float square = 0.0f;
    if (ADD) {
        sum += row * sum_stride;
    }
    for (u32 c = threadIdx.x; c < columns; c += blockDim.x) {
        float value = x[c];
        if (ADD) {
            value += sum[c];
            sum[c] = value;
        }
        square += value * value;
    }
    float factor = 1.0f / sqrtf(block_sum(square, partial) / float(columns) + eps);
    for (u32 c = threadIdx.x; c < columns; c += blockDim.x) {
        // Each thread reads back only what it wrote itself.
        out[c] = (ADD ? sum[c] : x[c]) * factor * w[c];
    }
}

#define RMS_NORM(per)                                                                             \
    KERNEL_OF(1024)                                                                               \
    rms_norm_##per(const float* x, u64 x_stride, const float* w, float eps, float* out,           \
                   u64 out_stride, u32 columns) {                                                 \
        rms_norm_vector<per, false>(x, x_stride, nullptr, 0, w, eps, out, out_stride, columns);   \
    }                                                                                             \
    KERNEL_OF(1024)                                                                               \
    add_rms_norm_##per(const float* x, u64 x_stride, float* sum, u64 sum_stride, const float* w,  \
                       float eps, float* out, u64 out_stride, u32 columns) {                      \
        rms_norm_vector<per, true>(x, x_stride, sum, sum_stride, w, eps, out, out_stride,         \
                                   columns);                                                      \
    }
RMS_NORM(1)
RMS_NORM(2)
RMS_NORM(4)

KERNEL_OF(1024)
rms_norm_any(const float* x, u64 x_stride, const float* w, float eps, float* out, u64 out_stride,
             u32 columns) {
    rms_norm_plain<false>(x, x_stride, nullptr, 0, w, eps, out, out_stride, columns);
}
KERNEL_OF(1024)
add_rms_norm_any(const float* x, u64 x_stride, float* sum, u64 sum_stride, const float* w,
                 float eps, float* out, u64 out_stride, u32 columns) {
    rms_norm_plain<true>(x, x_stride, sum, sum_stride, w, eps, out, out_stride, columns);
}
