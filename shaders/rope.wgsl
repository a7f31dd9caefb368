// math:     t = position * frequency; u' = u cos t - v sin t, v' = v cos t + u sin t for each pair
//           (Su et al. 2021)
// shapes:   x f32 [R, ..] with `heads` heads at `head_stride`, in place; positions i32 [R], a
//           negative one leaves its row alone; frequencies f32 [n/2], radians per position
// launch:   one invocation per pair, 64 a workgroup, grid folded to two dimensions
// bytes:    8 R heads n
// limits:   R heads n/2 < 2^32; frequencies below 2^24
// numerics: WGSL promises sin and cos only to 2^-11 and only on [-pi, pi], so the fraction of a
//           turn is computed in integers, exact to 2^-32 turns, and the rest is a polynomial in f32

struct Params {
    rows: u32,
    heads: u32,
    pairs: u32,
    x_offset: u32,
    x_stride: u32,
    head_stride: u32,
    positions_offset: u32,
    positions_stride: u32,
    frequencies_offset: u32,
    // Distance of the two values of a pair, and of the first values of two pairs.
    partner: u32,
    pair_step: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> positions: array<i32>;
@group(0) @binding(2) var<storage, read> frequencies: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

// High and low word of a * b.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let middle = ah * bl + (low >> 16u);
    let cross = al * bh + (middle & 0xffffu);
    return vec2<u32>(ah * bh + (middle >> 16u) + (cross >> 16u), (cross << 16u) | (low & 0xffffu));
}

// Turns per position as a fraction of 64 bits (high word first) for a non-negative frequency.
fn turns_per_position(frequency: f32) -> vec2<u32> {
    let bits = bitcast<u32>(frequency);
    let exponent = bits >> 23u;
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    if exponent < 32u {
        return vec2<u32>(0u);
    }
    // 1 / (2 pi) = 0x28be60db.9391054a.7f09d5f4 / 2^32; the product has 96 bits of fraction.
    let high = wide_product(mantissa, 0x28be60dbu);
    let middle = wide_product(mantissa, 0x9391054au);
    let low = wide_product(mantissa, 0x7f09d5f4u);
    var words = array<u32, 8>();
    words[0] = low.y;
    words[1] = middle.y + low.x;
    let carry = select(0u, 1u, words[1] < middle.y);
    // The high words are below 2^24, so only the sum with a full word can carry.
    let upper = middle.x + carry;
    words[2] = high.y + upper;
    words[3] = high.x + select(0u, 1u, words[2] < upper);
    // frequency = mantissa * 2^(exponent - 150)
    let shift = 150u - min(exponent, 150u);
    let whole = shift / 32u;
    let part = shift % 32u;
    let fraction = vec3<u32>(words[whole + 1u], words[whole + 2u], words[whole + 3u]);
    if part == 0u {
        return fraction.yx;
    }
    return (fraction.yx >> vec2<u32>(part)) | (fraction.zy << vec2<u32>(32u - part));
}

// cos and sin of position * frequency.
fn cos_sin(position: u32, frequency: f32) -> vec2<f32> {
    let turns = turns_per_position(frequency);
    let fraction = position * turns.x + wide_product(position, turns.y).x;
    let shifted = fraction + 0x20000000u;
    let quarter = shifted >> 30u;
    // What is left lies within an eighth of a turn of a quarter turn.
    let rest = f32(i32(shifted & 0x3fffffffu) - 0x20000000) * (6.283185307179586 / 4294967296.0);
    let square = rest * rest;
    let sine = rest + rest * square * (-1.6666667e-1
        + square * (8.3333333e-3 + square * (-1.9841270e-4 + square * 2.7557319e-6)));
    let cosine = 1.0 + square * (-0.5
        + square * (4.1666667e-2 + square * (-1.3888889e-3 + square * 2.4801587e-5)));
    switch quarter {
        case 0u: { return vec2<f32>(cosine, sine); }
        case 1u: { return vec2<f32>(-sine, cosine); }
        case 2u: { return vec2<f32>(-cosine, -sine); }
        default: { return vec2<f32>(sine, -cosine); }
    }
}

@compute @workgroup_size(WORKGROUP)
fn rope(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups) * WORKGROUP + lane;
    if index >= p.rows * p.heads * p.pairs {
        return;
    }
    let pair = index % p.pairs;
    let head = index / p.pairs % p.heads;
    let row = index / p.pairs / p.heads;
    let position = positions[p.positions_offset + row * p.positions_stride];
    if position < 0 {
        return;
    }
    let frequency = frequencies[p.frequencies_offset + pair];
    var turn = cos_sin(u32(position), abs(frequency));
    turn.y = select(turn.y, -turn.y, frequency < 0.0);
    let first = p.x_offset + row * p.x_stride + head * p.head_stride + pair * p.pair_step;
    let u = x[first];
    let v = x[first + p.partner];
    x[first] = u * turn.x - v * turn.y;
    x[first + p.partner] = v * turn.x + u * turn.y;
}
