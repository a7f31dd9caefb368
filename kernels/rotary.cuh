// Rotation of a pair, shared by rope and prepare_attention.
#pragma once
#include "common.cuh"

// Sine and cosine of position * frequency. The angle is reduced in f64, so that it is exact to f32
// precision at any position; the reduced angle needs no slow path.
INLINE void rotation(i32 position, float frequency, float& sine, float& cosine) {
    constexpr double INVERSE_PI = 0.31830988618379067154;
    double half_turns = double(position) * double(frequency) * INVERSE_PI;
    half_turns -= 2.0 * rint(half_turns * 0.5);
    sincospif(float(half_turns), &sine, &cosine);
}

// Columns of pair i of `pairs`.
INLINE void pair_columns(bool adjacent, u32 i, u32 pairs, u32& a, u32& b) {
    a = adjacent ? 2 * i : i;
    b = adjacent ? 2 * i + 1 : i + pairs;
}
