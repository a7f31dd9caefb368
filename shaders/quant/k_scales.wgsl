// 6-bit scale and minimum of sub-block `index` of q4_k and q5_k, from 12 bytes at word `base`.
fn k_scale_min(base: u32, index: u32) -> vec2<f32> {
    if index < 4u {
        return vec2<f32>(
            f32(byte_at(base, index) & 63u),
            f32(byte_at(base, index + 4u) & 63u),
        );
    }
    let nibble_pair = byte_at(base, index + 4u);
    return vec2<f32>(
        f32((nibble_pair & 15u) | ((byte_at(base, index - 4u) >> 6u) << 4u)),
        f32((nibble_pair >> 4u) | ((byte_at(base, index) >> 6u) << 4u)),
    );
}
