// q4_k: main = d, dmin, 12 bytes of scales, 128 bytes of nibbles; no tail.
const GAP: u32 = 32u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 2u) * 64u + (unit & 3u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 36u;
    let pair = (unit >> 2u) & 3u;
    let scale = unpack2x16float(weights[block]);
    let first = scale * k_scale_min(block + 1u, 2u * pair);
    let second = scale * k_scale_min(block + 1u, 2u * pair + 1u);
    let words = block + 4u + pair * 8u + (unit & 3u) * 2u;
    let low = weights[words];
    let high = weights[words + 1u];
    return Unit(
        first.x * bytes(nibbles(low)) - first.y,
        first.x * bytes(nibbles(high)) - first.y,
        second.x * bytes(nibbles(low >> 4u)) - second.y,
        second.x * bytes(nibbles(high >> 4u)) - second.y,
    );
}
