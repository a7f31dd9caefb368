// q5_1: main = 32 fifth bits, 16 bytes of nibbles; tail = d, m.
const GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 1u) * 32u + (unit & 1u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 1u) * 5u;
    let words = block + 1u + (unit & 1u) * 2u;
    let scale = unpack2x16float(weights[base + blocks * 5u + (unit >> 1u)]);
    let fifth = weights[block] >> ((unit & 1u) * 8u);
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        scale.x * bytes(nibbles(low) | (spread(fifth) << 4u)) + scale.y,
        scale.x * bytes(nibbles(high) | (spread(fifth >> 4u) << 4u)) + scale.y,
        scale.x * bytes(nibbles(low >> 4u) | (spread(fifth >> 16u) << 4u)) + scale.y,
        scale.x * bytes(nibbles(high >> 4u) | (spread(fifth >> 20u) << 4u)) + scale.y,
    );
}
