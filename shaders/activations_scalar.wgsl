// Activations of any alignment. Values past the row are zero: the padding of the weights is zero as
// well, but what follows a row in memory may be infinite.
@group(0) @binding(3) var<storage, read> x: array<f32>;

fn activation_at(start: u32, column: u32) -> f32 {
    if column >= p.columns {
        return 0.0;
    }
    return x[start + column];
}

fn activation(start: u32, column: u32) -> vec4<f32> {
    return vec4<f32>(
        activation_at(start, column),
        activation_at(start, column + 1u),
        activation_at(start, column + 2u),
        activation_at(start, column + 3u),
    );
}
