// Decoding of weights. A row is one run of 32-bit words: the main plane of all its blocks, then the
// tail plane of 16-bit fields that would break the alignment of the blocks (`weights.rs` lays it
// out). A unit is 16 values: `a`, `b` are 8 consecutive ones from `unit_column(unit)` on, `c`, `d`
// the 8 from `unit_column(unit) + GAP` on, so that both nibbles of a word serve one unit.
//
// A type's snippet defines GAP, unit_column(unit) and decode(base, blocks, unit) -> Unit, where
// `base` is the first word of the row and `blocks` the blocks in a row. The formulas are those of
// the format, evaluated left to right in f32.

struct Unit {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

// Four unsigned bytes, lowest first.
fn bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
}

// Four signed bytes, lowest first.
fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// Low nibbles of four bytes.
fn nibbles(word: u32) -> u32 {
    return word & 0x0f0f0f0fu;
}

// The low four bits of `bits` as the low bits of four bytes.
fn spread(bits: u32) -> u32 {
    return ((bits & 15u) * 0x00204081u) & 0x01010101u;
}

// Byte `index` counted from word `base`.
fn byte_at(base: u32, index: u32) -> u32 {
    return (word(base + (index >> 2u)) >> ((index & 3u) * 8u)) & 0xffu;
}

// 16-bit field `index` counted from word `base`.
fn half_at(base: u32, index: u32) -> u32 {
    return (word(base + (index >> 1u)) >> ((index & 1u) * 16u)) & 0xffffu;
}

fn f16_at(base: u32, index: u32) -> f32 {
    return unpack2x16float(half_at(base, index)).x;
}
