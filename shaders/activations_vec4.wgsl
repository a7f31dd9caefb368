// Activations whose offset, row stride and row length are multiples of 4: one load a quad.
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;

fn activation(start: u32, column: u32) -> vec4<f32> {
    return x[(start + column) >> 2u];
}
