//! The one tolerance table of whole models. Loosening a figure is a commit of its own.

/// How close a backend comes to the f32 goldens of the fixtures, as absolute differences.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    /// Logits. Their standard deviation is about 2.
    pub logits: f32,
    /// Logits of passes of at most [`FEW_ROWS`] rows.
    pub few_rows: f32,
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
pub const REFERENCE: Precision =
    Precision { logits: 5e-4, few_rows: 5e-4, hidden: 5e-4, state: 1e-4, shape: 0.0 };

/// Activations keep 16 bits, products of integers are summed exactly, attention of many rows
/// multiplies in f16: measured 2e-3 in the worst of 150,000 logits, 1e-2 on quantised files.
pub const CUDA: Precision =
    Precision { logits: 1e-2, few_rows: 2e-3, hidden: 2e-3, state: 1e-3, shape: 5e-3 };

/// WGSL products in f32, in another order; the sums of a row may depend on the pass's shape.
pub const WGPU: Precision =
    Precision { logits: 2e-3, few_rows: 2e-3, hidden: 2e-3, state: 5e-4, shape: 1e-3 };

/// Rows up to which a pass counts as a small one.
pub const FEW_ROWS: usize = 8;

impl Precision {
    /// Largest difference of logits in passes of `rows` rows.
    pub fn logits_of(&self, fixture: &str, rows: usize) -> f32 {
        let scale = if rows <= FEW_ROWS { self.few_rows / self.logits } else { 1.0 };
        scale * self.logits(fixture)
    }

    /// Largest difference of logits. The mixture of experts amplifies differences in its router.
    pub fn logits(&self, fixture: &str) -> f32 {
        if fixture == "hybrid-moe" { 2.0 * self.logits } else { self.logits }
    }

    /// The same for quantised files, whose golden is the dequantised model in f32: larger logits.
    pub fn quantised_logits(&self, fixture: &str) -> f32 {
        2.0 * self.logits(fixture)
    }

    /// Margin between two logits below which their order may change: `least`, or what both may be
    /// off together.
    pub fn margin(&self, least: f32) -> f32 {
        least.max(2.0 * self.logits)
    }
}
