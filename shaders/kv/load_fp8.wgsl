// Four stored values from value `index` (a multiple of 4) of the block at word `block`.
fn kv4(block: u32, index: u32) -> vec4<f32> {
    let codes = (vec4<u32>(pages[block + index / 4u]) >> vec4<u32>(0u, 8u, 16u, 24u))
        & vec4<u32>(0xffu);
    let magnitude = codes & vec4<u32>(0x7fu);
    let normal = bitcast<vec4<f32>>((magnitude << vec4<u32>(20u)) + vec4<u32>(120u << 23u));
    let subnormal = vec4<f32>(magnitude) * (1.0 / 512.0);
    let not_a_number = bitcast<vec4<f32>>((magnitude << vec4<u32>(16u)) | vec4<u32>(0x7f800000u));
    let finite = select(normal, subnormal, magnitude < vec4<u32>(8u));
    let value = select(finite, not_a_number, magnitude == vec4<u32>(0x7fu));
    return select(value, -value, codes > vec4<u32>(0x7fu));
}
