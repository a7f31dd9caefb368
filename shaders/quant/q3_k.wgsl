// q3_k: main = 32 bytes of high bits, 64 bytes of 2-bit planes, 12 bytes of scales; tail = d.
const GAP: u32 = 32u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 2u) * 64u + (unit & 3u) * 8u;
}

fn q3_scale(scales: u32, sub_block: u32) -> f32 {
    let low = (byte_at(scales, sub_block & 7u) >> (4u * (sub_block >> 3u))) & 15u;
    let high = (byte_at(scales, 8u + (sub_block & 3u)) >> (2u * (sub_block >> 2u))) & 3u;
    return f32(low | (high << 4u)) - 32.0;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 27u;
    let d = f16_at(base + blocks * 27u, unit >> 4u);
    let half_block = (unit >> 3u) & 1u;
    let plane = ((unit >> 2u) & 1u) * 2u;
    let eighth = unit & 3u;
    let words = block + 8u + half_block * 8u + eighth * 2u;
    let low = weights[words] >> (2u * plane);
    let high = weights[words + 1u] >> (2u * plane);
    let bit = 4u * half_block + plane;
    let low_mask = weights[block + eighth * 2u] >> bit;
    let high_mask = weights[block + eighth * 2u + 1u] >> bit;
    let sub_block = half_block * 8u + plane * 2u + (eighth >> 1u);
    let first = d * q3_scale(block + 24u, sub_block);
    let second = d * q3_scale(block + 24u, sub_block + 2u);
    return Unit(
        first * (bytes((low & 0x03030303u) | ((low_mask & 0x01010101u) << 2u)) - 4.0),
        first * (bytes((high & 0x03030303u) | ((high_mask & 0x01010101u) << 2u)) - 4.0),
        second * (bytes(((low >> 2u) & 0x03030303u) | (((low_mask >> 1u) & 0x01010101u) << 2u)) - 4.0),
        second * (bytes(((high >> 2u) & 0x03030303u) | (((high_mask >> 1u) & 0x01010101u) << 2u)) - 4.0),
    );
}
