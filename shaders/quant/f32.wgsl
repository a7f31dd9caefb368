// f32: one word a value; rows are padded with zeros to whole units.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn quad(index: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(
        weights[index],
        weights[index + 1u],
        weights[index + 2u],
        weights[index + 3u],
    ));
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + unit * 16u;
    return Unit(quad(words), quad(words + 4u), quad(words + 8u), quad(words + 12u));
}
