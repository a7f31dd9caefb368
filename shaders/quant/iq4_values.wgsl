// The sixteen values of iq4_nl and iq4_xs, four signed bytes a word.
fn iq4_value(code: u32) -> f32 {
    let negative = select(0xbfad9881u, 0xf6eaddcfu, (code & 4u) != 0u);
    let positive = select(0x26190d01u, 0x71594535u, (code & 4u) != 0u);
    let word = select(negative, positive, (code & 8u) != 0u);
    return f32((bitcast<i32>(word) << (24u - 8u * (code & 3u))) >> 24u);
}

// Values of the low nibbles of four bytes.
fn iq4_values(word: u32) -> vec4<f32> {
    return vec4<f32>(
        iq4_value(word),
        iq4_value(word >> 8u),
        iq4_value(word >> 16u),
        iq4_value(word >> 24u),
    );
}
