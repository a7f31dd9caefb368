// f32: one word a value; rows are padded with zeros to whole units.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let quad = (base >> 2u) + unit * 4u;
    return Unit(
        bitcast<vec4<f32>>(weights[quad]),
        bitcast<vec4<f32>>(weights[quad + 1u]),
        bitcast<vec4<f32>>(weights[quad + 2u]),
        bitcast<vec4<f32>>(weights[quad + 3u]),
    );
}
