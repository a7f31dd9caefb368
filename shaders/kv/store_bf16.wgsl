// Two bfloat16 a word.
@group(0) @binding(4) var<storage, read_write> pages: array<u32>;
const RUN: u32 = 4u;

fn bf16_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

fn store_run(block: u32, index: u32, plane: u32, row: u32, column: u32) {
    let word = block + index / 2u;
    let value = source4(plane, row, column);
    pages[word] = bf16_bits(value.x) | (bf16_bits(value.y) << 16u);
    pages[word + 1u] = bf16_bits(value.z) | (bf16_bits(value.w) << 16u);
}
