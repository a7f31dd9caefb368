// mxfp4: main = 16 bytes of nibbles, tail = exponent byte.
const GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 1u) * 32u + (unit & 1u) * 8u;
}

// Twice the value of an E2M1 code: 0 1 2 3 4 6 8 12 and their negatives; code 8 is plain zero.
fn e2m1_doubled(code: u32) -> f32 {
    let word = select(0x03020100u, 0x0c080604u, (code & 4u) != 0u);
    let magnitude = f32((word >> (8u * (code & 3u))) & 0xffu);
    return select(magnitude, 0.0 - magnitude, (code & 8u) != 0u);
}

fn e2m1_quad(word: u32) -> vec4<f32> {
    return vec4<f32>(
        e2m1_doubled(word),
        e2m1_doubled(word >> 8u),
        e2m1_doubled(word >> 16u),
        e2m1_doubled(word >> 24u),
    );
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + (unit >> 1u) * 4u + (unit & 1u) * 2u;
    let exponent = half_at(base + blocks * 4u, unit >> 1u);
    // 2^(exponent - 128), subnormal for exponents 0 and 1.
    let scale = bitcast<f32>(select(
        (exponent - 1u) << 23u,
        0x00200000u << min(exponent, 1u),
        exponent < 2u,
    ));
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        scale * e2m1_quad(low),
        scale * e2m1_quad(high),
        scale * e2m1_quad(low >> 4u),
        scale * e2m1_quad(high >> 4u),
    );
}
