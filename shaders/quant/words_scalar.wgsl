// Weights for formats whose units are no whole number of aligned quads.
@group(0) @binding(1) var<storage, read> weights: array<u32>;

fn word(index: u32) -> u32 {
    return weights[index];
}
