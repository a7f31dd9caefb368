// rope
// math:     (u, v) <- (u cos t - v sin t, v cos t + u sin t), t = position * frequency[i], for
//           pair i of each head: columns (i, i + n/2), or (2i, 2i + 1) if adjacent.
//           (Su et al. 2021)
// shapes:   x f32 rows of row_stride elements, head h at column h * head_stride; positions i32
//           [rows], negative = left alone; frequencies f32 [pairs], radians per position.
// launch:   grid (ceil(pairs / 32), rows), block (32, 8): x = pair, y strides over the heads, so
//           that a thread computes one sine and cosine for all its heads.
// bytes:    16 * rows * heads * pairs.
// limits:   rows <= 65535.
// numerics: angle reduced in f64, rotation in f32.
#include "rotary.cuh"

KERNEL rope(float* x, u64 row_stride, u64 head_stride, u32 heads, const i32* positions,
            u64 position_stride, const float* frequencies, u32 pairs, u32 adjacent) {
    wait_for_previous();
    start_next();
    u64 row = blockIdx.y;
    u32 i = blockIdx.x * WARP + threadIdx.x;
    i32 position = positions[row * position_stride];
    if (i >= pairs || position < 0) {
        return;
    }
    float sine, cosine;
    rotation(position, frequencies[i], sine, cosine);
    u32 a, b;
    pair_columns(adjacent != 0, i, pairs, a, b);
    for (u32 head = threadIdx.y; head < heads; head += blockDim.y) {
        float* values = x + row * row_stride + head * head_stride;
        float u = values[a], v = values[b];
        values[a] = u * cosine - v * sine;
        values[b] = v * cosine + u * sine;
    }
}
