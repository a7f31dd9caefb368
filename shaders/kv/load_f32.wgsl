// Four stored values from value `index` (a multiple of 4) of the block at word `block`.
fn kv4(block: u32, index: u32) -> vec4<f32> {
    let word = block + index;
    return bitcast<vec4<f32>>(
        vec4<u32>(pages[word], pages[word + 1u], pages[word + 2u], pages[word + 3u]),
    );
}
