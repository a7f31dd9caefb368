// iq3_xxs: main = 64 codebook indices, 8 words of 4 sign indices and a scale; tail = d.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let block = base + (unit >> 4u) * 24u;
    let d = f16_at(base + blocks * 24u, unit >> 4u);
    let codes = weights[block + (unit & 15u)];
    let rest = weights[block + 16u + ((unit >> 1u) & 7u)];
    let scale = d * (0.5 + f32(rest >> 28u)) * 0.5;
    let sign_index = rest >> ((unit & 1u) * 14u);
    let first_signs = sign_mask(sign_index);
    let second_signs = sign_mask(sign_index >> 7u);
    return Unit(
        scale * bytes(grids[GRID + (codes & 255u)]) * signs(first_signs),
        scale * bytes(grids[GRID + ((codes >> 8u) & 255u)]) * signs(first_signs >> 4u),
        scale * bytes(grids[GRID + ((codes >> 16u) & 255u)]) * signs(second_signs),
        scale * bytes(grids[GRID + (codes >> 24u)]) * signs(second_signs >> 4u),
    );
}
