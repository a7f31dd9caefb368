// q5_k: main = d, dmin, 12 bytes of scales, 32 bytes of fifth bits, 128 bytes of nibbles; no tail.
const GAP: u32 = 32u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 2u) * 64u + (unit & 3u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 44u;
    let pair = (unit >> 2u) & 3u;
    let scale = unpack2x16float(weights[block]);
    let first = scale * k_scale_min(block + 1u, 2u * pair);
    let second = scale * k_scale_min(block + 1u, 2u * pair + 1u);
    let fifth = block + 4u + (unit & 3u) * 2u;
    let low_fifth = weights[fifth] >> (2u * pair);
    let high_fifth = weights[fifth + 1u] >> (2u * pair);
    let words = block + 12u + pair * 8u + (unit & 3u) * 2u;
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        first.x * bytes(nibbles(low) | ((low_fifth & 0x01010101u) << 4u)) - first.y,
        first.x * bytes(nibbles(high) | ((high_fifth & 0x01010101u) << 4u)) - first.y,
        second.x * bytes(nibbles(low >> 4u) | (((low_fifth >> 1u) & 0x01010101u) << 4u)) - second.y,
        second.x * bytes(nibbles(high >> 4u) | (((high_fifth >> 1u) & 0x01010101u) << 4u)) - second.y,
    );
}
