// q6_k: main = 128 bytes of nibbles, 64 bytes of high bits, 16 signed scales; tail = d.
const GAP: u32 = 64u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 3u) * 128u + (unit & 7u) * 8u;
}

fn q6_scale(block: u32, sub_block: u32) -> f32 {
    return f32(bitcast<i32>(byte_at(block + 48u, sub_block) << 24u) >> 24u);
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 52u;
    let d = f16_at(base + blocks * 52u, unit >> 4u);
    let half_block = (unit >> 3u) & 1u;
    let quarter = (unit >> 2u) & 1u;
    let eighth = unit & 3u;
    let words = block + half_block * 16u + quarter * 8u + eighth * 2u;
    let low = weights[words];
    let high = weights[words + 1u];
    let bits = block + 32u + half_block * 8u + eighth * 2u;
    let low_bits = weights[bits] >> (2u * quarter);
    let high_bits = weights[bits + 1u] >> (2u * quarter);
    let sub_block = half_block * 8u + quarter * 2u + (eighth >> 1u);
    let first = d * q6_scale(block, sub_block);
    let second = d * q6_scale(block, sub_block + 4u);
    return Unit(
        first * (bytes(nibbles(low) | ((low_bits & 0x03030303u) << 4u)) - 32.0),
        first * (bytes(nibbles(high) | ((high_bits & 0x03030303u) << 4u)) - 32.0),
        second * (bytes(nibbles(low >> 4u) | (((low_bits >> 4u) & 0x03030303u) << 4u)) - 32.0),
        second * (bytes(nibbles(high >> 4u) | (((high_bits >> 4u) & 0x03030303u) << 4u)) - 32.0),
    );
}
