//! The one tolerance table of whole models. Loosening a figure is a commit of its own.

/// How close a backend comes to the f32 goldens of the fixtures, as absolute differences.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    /// Logits. Their standard deviation is about 2.
    pub logits: f32,
    /// Hidden states between layers: values up to 30.
    pub hidden: f32,
    /// Recurrent and convolution states, keys and values; twice that after 31 generated tokens.
    pub state: f32,
    /// The same rows in passes of another shape (padded, batched).
    pub shape: f32,
}

/// Products in f32: the engines that made the goldens differ among themselves by 2e-4 at most; the
/// rest allows for another order of summation. Every row is computed alone, so the shape of a pass
/// changes no bit.
pub const REFERENCE: Precision = Precision { logits: 5e-4, hidden: 5e-4, state: 1e-4, shape: 0.0 };

/// Passes of more than 8 rows multiply in f16 (11 bits a factor) with f32 sums: about 5e-4 relative
/// per product, over 8 layers, on logits of 2 to 10.
pub const CUDA: Precision = Precision { logits: 3e-2, hidden: 3e-2, state: 1e-2, shape: 3e-2 };

/// WGSL products in f32, in another order; the sums of a row may depend on the pass's shape.
pub const WGPU: Precision = Precision { logits: 2e-3, hidden: 2e-3, state: 5e-4, shape: 1e-3 };

impl Precision {
    /// Largest difference of logits. The mixture of experts amplifies differences in its router.
    pub fn logits(&self, fixture: &str) -> f32 {
        if fixture == "hybrid-moe" { 2.0 * self.logits } else { self.logits }
    }

    /// The same for quantised files, whose golden is the dequantised model in f32: larger logits.
    pub fn quantised_logits(&self, fixture: &str) -> f32 {
        2.0 * self.logits(fixture)
    }
}
