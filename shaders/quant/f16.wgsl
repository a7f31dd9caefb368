// f16: two values a word; rows are padded with zeros to whole units.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn quad(index: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(weights[index]), unpack2x16float(weights[index + 1u]));
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let words = base + unit * 8u;
    return Unit(quad(words), quad(words + 2u), quad(words + 4u), quad(words + 6u));
}
