// bf16: two values a word, the upper halves of f32; rows are padded with zeros to whole units.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn halves(low: u32, high: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(
        low << 16u,
        low & 0xffff0000u,
        high << 16u,
        high & 0xffff0000u,
    ));
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let low = weights[(base >> 2u) + unit * 2u];
    let high = weights[(base >> 2u) + unit * 2u + 1u];
    return Unit(
        halves(low.x, low.y),
        halves(low.z, low.w),
        halves(high.x, high.y),
        halves(high.z, high.w),
    );
}
