// iq2_xxs: main = 8 groups of 4 codebook indices, 4 sign indices and a scale; tail = d.
const GAP: u32 = 8u;

fn unit_column(unit: u32) -> u32 {
    return unit * 16u;
}

fn decode(base: u32, blocks: u32, unit: u32) -> Unit {
    let group = base + (unit >> 4u) * 16u + ((unit >> 1u) & 7u) * 2u;
    let d = f16_at(base + blocks * 16u, unit >> 4u);
    let codes = weights[group] >> ((unit & 1u) * 16u);
    let rest = weights[group + 1u];
    let scale = d * (0.5 + f32(rest >> 28u)) * 0.25;
    let first = GRID + (codes & 255u) * 2u;
    let second = GRID + ((codes >> 8u) & 255u) * 2u;
    let sign_index = rest >> ((unit & 1u) * 14u);
    let first_signs = sign_mask(sign_index);
    let second_signs = sign_mask(sign_index >> 7u);
    return Unit(
        scale * bytes(grids[first]) * signs(first_signs),
        scale * bytes(grids[first + 1u]) * signs(first_signs >> 4u),
        scale * bytes(grids[second]) * signs(second_signs),
        scale * bytes(grids[second + 1u]) * signs(second_signs >> 4u),
    );
}
