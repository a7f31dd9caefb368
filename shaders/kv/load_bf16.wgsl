// Four stored values from value `index` (a multiple of 4) of the block at word `block`.
fn kv4(block: u32, index: u32) -> vec4<f32> {
    let low = pages[block + index / 2u];
    let high = pages[block + index / 2u + 1u];
    return bitcast<vec4<f32>>(vec4<u32>(
        low << 16u,
        low & 0xffff0000u,
        high << 16u,
        high & 0xffff0000u,
    ));
}
