// q2_k: main = 16 scale bytes, 64 bytes of 2-bit planes; tail = d, dmin.
const GAP: u32 = 32u;

fn unit_column(unit: u32) -> u32 {
    return (unit >> 2u) * 64u + (unit & 3u) * 8u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 20u;
    let scale = unpack2x16float(weights[base + blocks * 20u + (unit >> 4u)]);
    let half_block = (unit >> 3u) & 1u;
    let plane = ((unit >> 2u) & 1u) * 2u;
    let eighth = unit & 3u;
    let words = block + 4u + half_block * 8u + eighth * 2u;
    let low = weights[words] >> (2u * plane);
    let high = weights[words + 1u] >> (2u * plane);
    let sub_block = half_block * 8u + plane * 2u + (eighth >> 1u);
    let first = byte_at(block, sub_block);
    let second = byte_at(block, sub_block + 2u);
    let first_scale = scale.x * f32(first & 15u);
    let first_min = scale.y * f32(first >> 4u);
    let second_scale = scale.x * f32(second & 15u);
    let second_min = scale.y * f32(second >> 4u);
    return Unit(
        first_scale * bytes(low & 0x03030303u) - first_min,
        first_scale * bytes(high & 0x03030303u) - first_min,
        second_scale * bytes((low >> 2u) & 0x03030303u) - second_min,
        second_scale * bytes((high >> 2u) & 0x03030303u) - second_min,
    );
}
