// Two halves a word.
@group(0) @binding(4) var<storage, read_write> pages: array<u32>;
const RUN: u32 = 4u;

// pack2x16float may round either way, so the halves are made by hand: to nearest even, overflow to
// infinity, subnormals kept.
fn half_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u;
    }
    if magnitude >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if magnitude < 0x38800000u {
        // Steps of 2^-24; round() is to nearest even.
        return sign | u32(round(bitcast<f32>(magnitude) * 16777216.0));
    }
    let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
    return sign | ((rounded >> 13u) - 0x1c000u);
}

fn store_run(block: u32, index: u32, plane: u32, row: u32, column: u32) {
    let word = block + index / 2u;
    let value = source4(plane, row, column);
    pages[word] = half_bits(value.x) | (half_bits(value.y) << 16u);
    pages[word + 1u] = half_bits(value.z) | (half_bits(value.w) << 16u);
}
