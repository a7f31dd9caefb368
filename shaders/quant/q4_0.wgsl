// q4_0: main = 16 bytes of nibbles, tail = d.
const GAP: u32 = 16u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 1u) * 32u + (unit & 1u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + (unit >> 1u) * 4u + (unit & 1u) * 2u;
    let d = f16_at(base + blocks * 4u, unit >> 1u);
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        d * (bytes(nibbles(low)) - 8.0),
        d * (bytes(nibbles(high)) - 8.0),
        d * (bytes(nibbles(low >> 4u)) - 8.0),
        d * (bytes(nibbles(high >> 4u)) - 8.0),
    );
}
