// embed
// math:     out[r, c] = table[ids[r], c], dequantised; 0 for a negative id, ids past the table
//           clamped.
// shapes:   ids i32 [rows]; table: rows of raw blocks, each row_bytes long, in host memory that the
//           device maps or in device memory; out f32 [rows, columns]. A table in several parts is
//           read by one launch a part: rows first .. first + part_rows of total_rows.
// launch:   grid (ceil(columns / 1024), rows), block 256. A block copies the raw bytes of its 1024
//           values to shared memory with 16-byte loads, then each thread decodes 4 values.
// bytes:    rows * (row_bytes over the bus + 4 * columns).
// limits:   table 16-byte aligned; columns a whole number of blocks; rows <= 65535.
// numerics: the bits of the host's decoder.
#include "raw_blocks.cuh"

constexpr u32 SEGMENT = 1024, THREADS = 256;

template <u32 TYPE>
INLINE void embed(const i32* ids, u64 id_stride, const u8* table, u64 row_bytes, u32 first,
                  u32 part_rows, u32 total_rows, float* out, u64 out_stride, u32 columns) {
    using Block = RawBlock<TYPE>;
    __shared__ __align__(16) u8 raw[SEGMENT * 4 + 32];
    wait_for_previous();
    start_next();
    i32 id = ids[u64(blockIdx.y) * id_stride];
    u32 column = blockIdx.x * SEGMENT;
    u32 count = min(SEGMENT, columns - column);
    float* to = out + u64(blockIdx.y) * out_stride + column;
    if (id < 0) {
        for (u32 i = threadIdx.x; first == 0 && i < count; i += THREADS) {
            to[i] = 0.0f;
        }
        return;
    }
    u32 row = min(u32(id), total_rows - 1);
    if (row < first || row >= first + part_rows) {
        return;
    }
    u64 start = (row - first) * row_bytes + column / Block::VALUES * Block::BYTES;
    u64 end = start + count / Block::VALUES * Block::BYTES;
    u64 aligned = start & ~15ull, table_bytes = part_rows * row_bytes;
    for (u64 at = aligned + threadIdx.x * 16; at < end; at += THREADS * 16) {
        u8* target = raw + (at - aligned);
        if (at + 16 <= table_bytes) {
            *reinterpret_cast<uint4*>(target) = load_stream(table + at);
        } else {
            for (u32 i = 0; at + i < table_bytes; ++i) {
                target[i] = table[at + i];
            }
        }
    }
    __syncthreads();
    const u8* blocks = raw + (start - aligned);
    for (u32 i = threadIdx.x; i < count; i += THREADS) {
        to[i] = raw_value<TYPE>(blocks + i / Block::VALUES * Block::BYTES, i % Block::VALUES);
    }
}

#define EMBED(name, type)                                                                       \
    KERNEL embed_##name(const i32* ids, u64 id_stride, const u8* table, u64 row_bytes, u32 first, \
                        u32 part_rows, u32 total_rows, float* out, u64 out_stride, u32 columns) { \
        embed<type>(ids, id_stride, table, row_bytes, first, part_rows, total_rows, out,         \
                    out_stride, columns);                                                        \
    }
EMBED(f32, TYPE_F32)
EMBED(f16, TYPE_F16)
EMBED(bf16, TYPE_BF16)
EMBED(q4_0, TYPE_Q4_0)
EMBED(q4_1, TYPE_Q4_1)
EMBED(q5_0, TYPE_Q5_0)
EMBED(q5_1, TYPE_Q5_1)
EMBED(q8_0, TYPE_Q8_0)
EMBED(q2_k, TYPE_Q2_K)
EMBED(q3_k, TYPE_Q3_K)
EMBED(q4_k, TYPE_Q4_K)
EMBED(q5_k, TYPE_Q5_K)
EMBED(q6_k, TYPE_Q6_K)
EMBED(iq2_xxs, TYPE_IQ2_XXS)
EMBED(iq2_xs, TYPE_IQ2_XS)
EMBED(iq3_xxs, TYPE_IQ3_XXS)
EMBED(iq4_nl, TYPE_IQ4_NL)
EMBED(iq4_xs, TYPE_IQ4_XS)
EMBED(mxfp4, TYPE_MXFP4)
