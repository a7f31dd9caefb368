// copy_pages
// math:     word i of a range of one row of `state` <-> word (page_start + i) % block_words of pool
//           block table[1 + (page_start + i) / block_words].
// shapes:   table i32 [1 + n]: row, then blocks; state: rows of row_words words; pages: blocks of
//           block_words words.
// launch:   grid-stride over the range, block 256; a thread copies 16 bytes, or 4.
// bytes:    8 * words.
// limits:   16-byte accesses where starts, lengths and addresses allow it; a negative or too large
//           row or block is skipped.
// numerics: a copy.
#include "common.cuh"

// Words of a launch, in units of Word.
struct Range {
    u64 row_words, state_start, page_start, words;
    u32 block_words, rows, blocks, to_pages;
};

template <class Word>
INLINE void copy_range(u8* state, u8* pages, const i32* table, u32 row, Range r) {
    Word* line = reinterpret_cast<Word*>(state) + row * r.row_words + r.state_start;
    Word* pool = reinterpret_cast<Word*>(pages);
    u64 step = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < r.words; i += step) {
        u64 at = r.page_start + i;
        i32 block = table[1 + at / r.block_words];
        if (block < 0 || u32(block) >= r.blocks) {
            continue;
        }
        Word* page = pool + u64(block) * r.block_words + at % r.block_words;
        if (r.to_pages) {
            *page = line[i];
        } else {
            line[i] = *page;
        }
    }
}

KERNEL copy_pages(u8* state, u8* pages, const i32* table, u64 row_words, u64 state_start,
                  u64 page_start, u64 words, u32 block_words, u32 rows, u32 blocks, u32 to_pages) {
    wait_for_previous();
    start_next();
    i32 row = table[0];
    if (row < 0 || u32(row) >= rows) {
        return;
    }
    Range r = {row_words, state_start, page_start, words, block_words, rows, blocks, to_pages};
    u64 alignment = (row_words | state_start | page_start | words | block_words) * 4 | u64(state) |
                    u64(pages);
    if (alignment % 16 == 0) {
        r.row_words /= 4, r.state_start /= 4, r.page_start /= 4, r.words /= 4, r.block_words /= 4;
        copy_range<uint4>(state, pages, table, row, r);
    } else {
        copy_range<u32>(state, pages, table, row, r);
    }
}
