// Four stored values from value `index` (a multiple of 4) of the block at word `block`.
fn kv4(block: u32, index: u32) -> vec4<f32> {
    let half_index = index / GROUP;
    let scales = unpack2x16float(pages[block + BLOCK_VALUES / 4u + half_index / 2u]);
    let word = bitcast<i32>(pages[block + index / 4u]);
    let quants = (vec4<i32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u);
    return select(scales.x, scales.y, (half_index & 1u) == 1u) * vec4<f32>(quants);
}
