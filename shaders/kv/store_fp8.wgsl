// Four e4m3 codes a word.
@group(0) @binding(4) var<storage, read_write> pages: array<u32>;
const RUN: u32 = 4u;

// To nearest even, saturating at 448; NaN stays NaN.
fn fp8_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 24u) & 0x80u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7fu;
    }
    if magnitude >= 0x43e00000u {
        return sign | 0x7eu;
    }
    if magnitude < 0x3c800000u {
        // Below 2^-6: steps of 2^-9.
        return sign | u32(round(bitcast<f32>(magnitude) * 512.0));
    }
    let rounded = magnitude + 0x7ffffu + ((magnitude >> 20u) & 1u);
    return sign | min((rounded >> 20u) - 960u, 0x7eu);
}

fn store_run(block: u32, index: u32, plane: u32, row: u32, column: u32) {
    let value = source4(plane, row, column);
    pages[block + index / 4u] = fp8_bits(value.x) | (fp8_bits(value.y) << 8u)
        | (fp8_bits(value.z) << 16u) | (fp8_bits(value.w) << 24u);
}
