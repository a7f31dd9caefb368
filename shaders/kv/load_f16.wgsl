// Four stored values from value `index` (a multiple of 4) of the block at word `block`.
fn kv4(block: u32, index: u32) -> vec4<f32> {
    let word = block + index / 2u;
    return vec4<f32>(unpack2x16float(pages[word]), unpack2x16float(pages[word + 1u]));
}
