// q4_1: main = 16 bytes of nibbles, tail = d, m.
const GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 1u) * 32u + (unit & 1u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + (unit >> 1u) * 4u + (unit & 1u) * 2u;
    let scale = unpack2x16float(weights[base + blocks * 4u + (unit >> 1u)]);
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        scale.x * bytes(nibbles(low)) + scale.y,
        scale.x * bytes(nibbles(high)) + scale.y,
        scale.x * bytes(nibbles(low >> 4u)) + scale.y,
        scale.x * bytes(nibbles(high >> 4u)) + scale.y,
    );
}
