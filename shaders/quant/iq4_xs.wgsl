// iq4_xs: main = d and the high bits of the scales, the low bits, 128 bytes of nibbles; no tail.
const GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 1u) * 32u + (unit & 1u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 34u;
    let group = (unit >> 1u) & 7u;
    let head = weights[block];
    let low_bits = (weights[block + 1u] >> (4u * group)) & 15u;
    let high_bits = (head >> (16u + 2u * group)) & 3u;
    let scale = unpack2x16float(head).x * (f32(low_bits | (high_bits << 4u)) - 32.0);
    let words = block + 2u + group * 4u + (unit & 1u) * 2u;
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        scale * iq4_values(low),
        scale * iq4_values(high),
        scale * iq4_values(low >> 4u),
        scale * iq4_values(high >> 4u),
    );
}
