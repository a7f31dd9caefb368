// q8_0: main = 32 signed bytes, tail = d.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let quad = weights[(base >> 2u) + unit];
    let d = f16_at(base + blocks * 8u, unit >> 1u);
    return Unit(
        d * signed_bytes(quad.x),
        d * signed_bytes(quad.y),
        d * signed_bytes(quad.z),
        d * signed_bytes(quad.w),
    );
}
