// moe_group
// math:     sorts the entries e = 0..entries by ids[e] and cuts each expert's run into segments of
//           at most `width` entries.
// shapes:   ids i32 [entries]; order i32 [entries]; segments i32 [max_segments, 4] = expert, first
//           place in order, entries, 0. Negative ids, and any past the experts, come as expert -1.
//           Segments left over have no entries.
// launch:   one block of 1024 threads. Shared: 12 KiB, static.
// bytes:    8 * entries + 16 * max_segments.
// limits:   experts < 1024; max_segments >= min(entries, entries / width + experts + 1).
// numerics: the order inside an expert depends on the run, the products do not: each entry is its
//           own column of a product.
#include "common.cuh"

constexpr u32 THREADS = 1024;

// Sum of the values of the threads before this one.
INLINE u32 exclusive_sum(u32 value, u32* shared) {
    u32 own = value;
    for (u32 step = 1; step < THREADS; step *= 2) {
        shared[threadIdx.x] = value;
        __syncthreads();
        if (threadIdx.x >= step) value += shared[threadIdx.x - step];
        __syncthreads();
    }
    return value - own;
}

KERNEL __launch_bounds__(1024) moe_group(
    const i32* ids, u32 entries, u32 experts, u32 width, u32 max_segments, i32* order,
    int4* segments) {
    __shared__ u32 counts[THREADS], places[THREADS], sums[THREADS];
    wait_for_previous();
    start_next();
    u32 expert = threadIdx.x;
    counts[expert] = 0;
    __syncthreads();
    // Threads 0..experts stand for an expert each, thread `experts` for the entries without one.
    for (u32 e = threadIdx.x; e < entries; e += THREADS)
        atomicAdd(&counts[min(u32(ids[e]), experts)], 1);
    __syncthreads();
    u32 count = counts[expert], pieces = (count + width - 1) / width;
    u32 first = exclusive_sum(count, sums), segment = exclusive_sum(pieces, sums);
    places[expert] = first;
    for (u32 i = 0; i < pieces && segment + i < max_segments; i++) {
        u32 begin = i * width;
        segments[segment + i] = make_int4(expert < experts ? i32(expert) : -1, i32(first + begin),
                                          i32(min(width, count - begin)), 0);
    }
    if (threadIdx.x == THREADS - 1) sums[0] = segment + pieces;
    __syncthreads();
    u32 all = sums[0];
    for (u32 i = all + threadIdx.x; i < max_segments; i += THREADS)
        segments[i] = make_int4(0, 0, 0, 0);
    for (u32 e = threadIdx.x; e < entries; e += THREADS)
        order[atomicAdd(&places[min(u32(ids[e]), experts)], 1)] = i32(e);
}
