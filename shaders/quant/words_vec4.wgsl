// Weights for formats whose units are aligned quads of words: one load a quad.
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;

fn word(index: u32) -> u32 {
    return weights[index >> 2u][index & 3u];
}
