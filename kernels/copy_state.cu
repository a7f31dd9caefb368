// copy_state
// math:     state[to] = state[from] for each line (from, to) of pairs, unless from is negative.
// shapes:   pairs i32 [lines, 2]; state: slots of row_bytes bytes, one after the other.
// launch:   grid (chunks, lines), block 256; a thread copies 16 bytes at a stride over the row.
// bytes:    2 * lines * row_bytes.
// limits:   16-byte accesses where row_bytes is a multiple of 16, else of 4, else single bytes; a
//           line that leaves the state is dropped; targets distinct and no source of another line.
// numerics: a copy.
#include "common.cuh"

template <class Word>
INLINE void copy_words(const u8* from, u8* to, u64 bytes) {
    const Word* source = reinterpret_cast<const Word*>(from);
    Word* target = reinterpret_cast<Word*>(to);
    u64 count = bytes / sizeof(Word), step = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        target[i] = source[i];
    }
}

KERNEL copy_state(const i32* pairs, u64 pair_stride, u8* state, u64 row_bytes, u32 slots) {
    wait_for_previous();
    start_next();
    i32 from = pairs[blockIdx.y * pair_stride], to = pairs[blockIdx.y * pair_stride + 1];
    if (from < 0 || to < 0 || from == to || u32(from) >= slots || u32(to) >= slots) {
        return;
    }
    const u8* source = state + u64(from) * row_bytes;
    u8* target = state + u64(to) * row_bytes;
    u64 alignment = u64(state) | row_bytes;
    if (alignment % 16 == 0) {
        copy_words<uint4>(source, target, row_bytes);
    } else if (alignment % 4 == 0) {
        copy_words<u32>(source, target, row_bytes);
    } else {
        copy_words<u8>(source, target, row_bytes);
    }
}
