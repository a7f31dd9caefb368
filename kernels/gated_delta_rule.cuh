// What the forms of the gated delta rule share: arguments and head mapping.
#pragma once
#include "common.cuh"
#include "sequences.cuh"

// q | k | v of a row lie one after the other, each head-major; b | a likewise.
struct DeltaRows {
    const float* qkv;
    i64 qkv_stride;
    const float* ba;
    i64 ba_stride;
    const float* head_constants;  // [2, value_heads]: -exp(A_log), dt_bias
    int key_heads, value_heads, value_dim;
};

// Key head of a value head: consecutive value heads share one, or every key_heads-th.
INLINE int key_head(const DeltaRows& rows, int value_head, bool modulo) {
    return modulo ? value_head % rows.key_heads
                  : value_head / (rows.value_heads / rows.key_heads);
}
// The inverse: value head `index` of a key head.
INLINE int value_head(const DeltaRows& rows, int key_head, int index, bool modulo) {
    return modulo ? key_head + index * rows.key_heads
                  : key_head * (rows.value_heads / rows.key_heads) + index;
}
INLINE float write_strength(const DeltaRows& rows, i64 row, int head) {
    return sigmoid(rows.ba[row * rows.ba_stride + head]);
}
// Never positive.
INLINE float log_decay(const DeltaRows& rows, i64 row, int head) {
    const float a = rows.ba[row * rows.ba_stride + rows.value_heads + head];
    return rows.head_constants[head] * softplus(a + rows.head_constants[rows.value_heads + head]);
}
// 1 / length, as l2norm has it.
INLINE float inverse_norm(float square) { return 1.0f / sqrtf(square + 1e-6f); }
