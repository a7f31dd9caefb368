// bf16: two values a word, the upper halves of f32; rows are padded with zeros to whole units.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn quad(index: u32) -> vec4<f32> {
    let low = weights[index];
    let high = weights[index + 1u];
    return bitcast<vec4<f32>>(vec4<u32>(
        low << 16u,
        low & 0xffff0000u,
        high << 16u,
        high & 0xffff0000u,
    ));
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + unit * 8u;
    return Unit(quad(words), quad(words + 2u), quad(words + 4u), quad(words + 6u));
}
