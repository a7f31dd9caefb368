//! The one tolerance table. Loosening a figure is a commit of its own.

/// Largest absolute difference of logits against the f32 golden of a fixture.
///
/// The f32 engines that made the goldens differ among themselves by 2e-4 at most; 5e-4 allows for
/// another order of summation. The mixture of experts amplifies differences through its router.
pub fn logits(fixture: &str) -> f32 {
    if fixture == "hybrid-moe" { 1e-3 } else { 5e-4 }
}

/// The same for quantised GGUF files, whose golden is the dequantised model in f32: larger logits
/// on random weights, so twice the room.
pub fn quantised_logits(fixture: &str) -> f32 {
    2.0 * logits(fixture)
}

/// Hidden states between layers: values up to 30, six digits of f32.
pub const HIDDEN: f32 = 5e-4;

/// Recurrent and convolution states, keys and values.
pub const STATE: f32 = 1e-4;

/// The same after generated tokens: the error of 31 more steps.
pub const STATE_LATER: f32 = 2e-4;
