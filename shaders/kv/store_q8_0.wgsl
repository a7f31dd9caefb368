// Four signed bytes a word, an f16 scale per RUN = GROUP values. Two scales share a word and may
// belong to tokens of different passes, so a scale is put in place by two atomic operations that
// leave the other half alone.
@group(0) @binding(4) var<storage, read_write> pages: array<atomic<u32>>;
const RUN: u32 = GROUP;

// f16 bits of a non-negative finite value below 65520, to nearest even.
fn half_bits(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if bits >= 0x477ff000u {
        return 0x7c00u;
    }
    if bits < 0x38800000u {
        return u32(round(value * 16777216.0));
    }
    return ((bits + 0xfffu + ((bits >> 13u) & 1u)) >> 13u) - 0x1c000u;
}

fn store_run(block: u32, index: u32, plane: u32, row: u32, column: u32) {
    var largest = 0.0;
    for (var i = 0u; i < RUN; i++) {
        largest = max(largest, abs(source(plane, row, column + i)));
    }
    let scale_bits = half_bits(largest / 127.0);
    let scale = unpack2x16float(scale_bits).x;
    var inverse = 0.0;
    if scale > 0.0 {
        inverse = 1.0 / scale;
    }
    for (var i = 0u; i < RUN; i += 4u) {
        let scaled = source4(plane, row, column + i) * inverse;
        let quants = vec4<i32>(clamp(round(scaled), vec4<f32>(-127.0), vec4<f32>(127.0)));
        let packed = bitcast<vec4<u32>>(quants) & vec4<u32>(0xffu);
        atomicStore(
            &pages[block + (index + i) / 4u],
            packed.x | (packed.y << 8u) | (packed.z << 16u) | (packed.w << 24u),
        );
    }
    let half_index = index / RUN;
    let word = block + BLOCK_VALUES / 4u + half_index / 2u;
    let shift = (half_index & 1u) * 16u;
    atomicAnd(&pages[word], ~(0xffffu << shift));
    atomicOr(&pages[word], scale_bits << shift);
}
