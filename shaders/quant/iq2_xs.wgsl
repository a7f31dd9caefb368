// iq2_xs: main = 32 fields of a codebook index (9 bits) and a sign index (7), 16 scales of 4 bits;
// tail = d.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 18u;
    let d = f16_at(base + blocks * 18u, unit >> 4u);
    let fields = weights[block + (unit & 15u)];
    let scale_byte = byte_at(block + 16u, (unit >> 1u) & 7u);
    let scale = d * (0.5 + f32((scale_byte >> ((unit & 1u) * 4u)) & 15u)) * 0.25;
    let first = GRID + (fields & 511u) * 2u;
    let second = GRID + ((fields >> 16u) & 511u) * 2u;
    let first_signs = sign_mask(fields >> 9u);
    let second_signs = sign_mask(fields >> 25u);
    return Unit(
        scale * bytes(grids[first]) * signs(first_signs),
        scale * bytes(grids[first + 1u]) * signs(first_signs >> 4u),
        scale * bytes(grids[second]) * signs(second_signs),
        scale * bytes(grids[second + 1u]) * signs(second_signs >> 4u),
    );
}
