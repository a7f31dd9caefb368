//! Activations of a pass, allocated once for the largest pass and viewed for smaller ones.

use super::PassShape;
use crate::backend::Backend;
use crate::config::{FeedForwardConfig, ModelConfig};
use crate::error::Result;
use crate::tensor::{DType, Shape, Tensor};

/// Activation tensors; `R` rows, `N` output rows.
pub struct Workspace<B: Backend> {
    /// Residual stream without the last addition `[R, H]`.
    pub x: Tensor<B>,
    /// Output of the last mixer or feed-forward, still to be added `[R, H]`.
    pub delta: Tensor<B>,
    /// Input of a mixer or feed-forward `[R, H]`.
    pub normed: Tensor<B>,
    /// After the final norm `[R, H]`: input of the head and of the MTP block.
    pub hidden: Tensor<B>,
    /// Packed projections of a mixer `[R, widest]`.
    pub packed: Tensor<B>,
    /// Convolved `q | k | v` `[R, channels]`.
    pub convolved: Tensor<B>,
    /// Output of the attention or delta rule `[R, widest]`.
    pub mixed: Tensor<B>,
    /// Output of the gated norm `[R, values]`.
    pub gated: Tensor<B>,
    /// `gate | up` `[R, 2I]`.
    pub gate_up: Tensor<B>,
    /// `silu(gate) * up` `[R, I]`.
    pub inner: Tensor<B>,
    /// Hidden rows that go through the head `[N, H]`.
    pub gathered: Tensor<B>,
    /// `[N, V]`.
    pub logits: Tensor<B>,
    /// Argmax of the logits, i32 `[N]`.
    pub tokens: Tensor<B>,
    /// Mixture of experts (one element each in a dense model).
    pub moe: MoeWorkspace<B>,
    /// Input of `mtp.fc` `[R, 2H]` (one element without an MTP block).
    pub mtp_input: Tensor<B>,
    /// Hidden state of the MTP block after its norm `[R, H]` (one element without one).
    pub mtp_hidden: Tensor<B>,
}

/// Activations of a mixture-of-experts feed-forward with `k` experts a row.
pub struct MoeWorkspace<B: Backend> {
    /// `[R, E]`.
    pub router_logits: Tensor<B>,
    /// i32 `[R, k]`.
    pub ids: Tensor<B>,
    /// `[R, k]`.
    pub weights: Tensor<B>,
    /// `[R * k, 2I]`.
    pub gate_up: Tensor<B>,
    /// `[R * k, I]`.
    pub inner: Tensor<B>,
    /// `[R * k, H]`.
    pub out: Tensor<B>,
    /// `[R, H]`.
    pub shared: Tensor<B>,
    /// `[R, 1]`.
    pub shared_gate: Tensor<B>,
    /// Experts a row.
    top_k: usize,
}

/// Widths of the activation tensors, in values per row.
struct Widths {
    packed: usize,
    convolved: usize,
    mixed: usize,
    gated: usize,
    inner: usize,
    experts: usize,
    top_k: usize,
    expert_inner: usize,
    expert_hidden: usize,
    mtp: usize,
}

impl Widths {
    fn of(config: &ModelConfig) -> Self {
        let attention = &config.attention;
        let queries = attention.query_heads * attention.head_dim;
        let projected = if attention.gated { 2 * queries } else { queries };
        let keys = attention.kv_heads * attention.head_dim;
        let (delta_packed, channels, values) = config.delta_net.as_ref().map_or((0, 1, 1), |d| {
            (d.channels() + d.values() + 2 * d.value_heads, d.channels(), d.values())
        });
        let (inner, experts, top_k, expert_inner) = match config.feed_forward {
            FeedForwardConfig::Dense { intermediate } => (intermediate, 1, 1, 1),
            FeedForwardConfig::Moe { experts, top_k, intermediate, shared_intermediate } => {
                (shared_intermediate, experts, top_k, intermediate)
            }
        };
        let moe = matches!(config.feed_forward, FeedForwardConfig::Moe { .. });
        Self {
            packed: delta_packed.max(projected + 2 * keys),
            convolved: channels,
            mixed: queries.max(values),
            gated: values,
            inner,
            experts,
            top_k,
            expert_inner,
            expert_hidden: if moe { config.hidden_size } else { 1 },
            mtp: if config.mtp { config.hidden_size } else { 1 },
        }
    }
}

impl<B: Backend> Workspace<B> {
    /// Activations for passes of at most `shape`.
    ///
    /// # Errors
    /// Allocation errors.
    pub fn new(backend: &B, config: &ModelConfig, shape: PassShape) -> Result<Self> {
        let widths = Widths::of(config);
        let (rows, outputs, hidden) = (shape.rows, shape.outputs.max(1), config.hidden_size);
        let floats = |rows: usize, width| backend.zeros(Shape::new(&[rows, width]), DType::F32);
        let pairs = rows * widths.top_k;
        Ok(Self {
            x: floats(rows, hidden)?,
            delta: floats(rows, hidden)?,
            normed: floats(rows, hidden)?,
            hidden: floats(rows, hidden)?,
            packed: floats(rows, widths.packed)?,
            convolved: floats(rows, widths.convolved)?,
            mixed: floats(rows, widths.mixed)?,
            gated: floats(rows, widths.gated)?,
            gate_up: floats(rows, 2 * widths.inner)?,
            inner: floats(rows, widths.inner)?,
            gathered: floats(outputs, hidden)?,
            logits: floats(outputs, config.vocab_size)?,
            tokens: backend.zeros(Shape::new(&[outputs]), DType::I32)?,
            moe: MoeWorkspace {
                router_logits: floats(rows, widths.experts)?,
                ids: backend.zeros(Shape::new(&[rows, widths.top_k]), DType::I32)?,
                weights: floats(rows, widths.top_k)?,
                gate_up: floats(pairs, 2 * widths.expert_inner)?,
                inner: floats(pairs, widths.expert_inner)?,
                out: floats(pairs, widths.expert_hidden)?,
                shared: floats(rows, widths.expert_hidden)?,
                shared_gate: floats(rows, 1)?,
                top_k: widths.top_k,
            },
            mtp_input: floats(rows, 2 * widths.mtp)?,
            mtp_hidden: floats(rows, widths.mtp)?,
        })
    }

    /// Bytes that [`Workspace::new`] allocates.
    pub fn bytes(config: &ModelConfig, shape: PassShape) -> usize {
        let w = Widths::of(config);
        let hidden = config.hidden_size;
        let row = 4 * hidden
            + w.packed
            + w.convolved
            + w.mixed
            + w.gated
            + 3 * w.inner
            + w.experts
            + w.top_k * (2 + 3 * w.expert_inner + w.expert_hidden)
            + w.expert_hidden
            + 1
            + 3 * w.mtp;
        4 * (row * shape.rows + shape.outputs.max(1) * (hidden + config.vocab_size + 1))
    }

    /// The first rows of these tensors.
    ///
    /// # Errors
    /// Shape error if `shape` is larger.
    pub fn view(&self, shape: PassShape) -> Result<Self> {
        let (rows, outputs) = (shape.rows, shape.outputs.max(1));
        let pairs = rows * self.moe.top_k;
        let moe = &self.moe;
        Ok(Self {
            x: self.x.first_rows(rows)?,
            delta: self.delta.first_rows(rows)?,
            normed: self.normed.first_rows(rows)?,
            hidden: self.hidden.first_rows(rows)?,
            packed: self.packed.first_rows(rows)?,
            convolved: self.convolved.first_rows(rows)?,
            mixed: self.mixed.first_rows(rows)?,
            gated: self.gated.first_rows(rows)?,
            gate_up: self.gate_up.first_rows(rows)?,
            inner: self.inner.first_rows(rows)?,
            gathered: self.gathered.first_rows(outputs)?,
            logits: self.logits.first_rows(outputs)?,
            tokens: self.tokens.first_rows(outputs)?,
            moe: MoeWorkspace {
                router_logits: moe.router_logits.first_rows(rows)?,
                ids: moe.ids.first_rows(rows)?,
                weights: moe.weights.first_rows(rows)?,
                gate_up: moe.gate_up.first_rows(pairs)?,
                inner: moe.inner.first_rows(pairs)?,
                out: moe.out.first_rows(pairs)?,
                shared: moe.shared.first_rows(rows)?,
                shared_gate: moe.shared_gate.first_rows(rows)?,
                top_k: moe.top_k,
            },
            mtp_input: self.mtp_input.first_rows(rows)?,
            mtp_hidden: self.mtp_hidden.first_rows(rows)?,
        })
    }
}
