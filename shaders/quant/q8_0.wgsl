// q8_0: main = 32 signed bytes, tail = d.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + unit * 4u;
    let d = f16_at(base + blocks * 8u, unit >> 1u);
    return Unit(
        d * signed_bytes(weights[words]),
        d * signed_bytes(weights[words + 1u]),
        d * signed_bytes(weights[words + 2u]),
        d * signed_bytes(weights[words + 3u]),
    );
}
