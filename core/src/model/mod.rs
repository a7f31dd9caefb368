//! The hybrid graph, written once over [`Ops`]: embed, layers, norm, head. Read this page first.
//!
//! Between layers the residual stream is `work.x + work.delta`: the last addition of a layer is
//! fused with the first norm of the next.

mod attention;
mod cache;
mod delta_net;
mod feed_forward;
mod inputs;
mod load;
mod mtp;
mod rope;
mod snapshot;
mod workspace;

pub use attention::Attention;
pub use cache::{Cache, CacheOptions};
pub use delta_net::DeltaNet;
pub use feed_forward::FeedForward;
pub use inputs::{Batch, BatchSequence, PassShape, StepInputs};
pub use load::{LoadProgress, load};
pub use mtp::{Mtp, MtpSource};
pub use rope::frequencies;
pub use workspace::Workspace;

use crate::backend::{Backend, Weight};
use crate::config::ModelConfig;
use crate::error::Result;
use crate::kv::KvPool;
use crate::ops::Ops;
use crate::tensor::Tensor;

/// A model on a device.
pub struct Model<B: Backend> {
    /// Hyper-parameters.
    pub config: ModelConfig,
    /// Token embedding `[V, H]`, for look-ups.
    pub embed: Weight<B>,
    /// Main layers.
    pub layers: Vec<Layer<B>>,
    /// Final norm `[H]`.
    pub norm: Tensor<B>,
    /// Head `[V, H]`.
    pub head: Weight<B>,
    /// Radians per position of each rotary pair, f32 `[n/2]`.
    pub frequencies: Tensor<B>,
    /// Draft head.
    pub mtp: Option<Mtp<B>>,
    /// Bytes of the weights in device memory, as stored in the checkpoint.
    pub weight_bytes: u64,
}

/// One decoder layer.
pub struct Layer<B: Backend> {
    /// Norm before the mixer `[H]`.
    pub attn_norm: Tensor<B>,
    /// Token mixer.
    pub mixer: Mixer<B>,
    /// Norm before the feed-forward `[H]`.
    pub ffn_norm: Tensor<B>,
    /// Feed-forward.
    pub feed_forward: FeedForward<B>,
}

/// Token mixer of a layer.
pub enum Mixer<B: Backend> {
    /// Full attention.
    Attention(Attention<B>),
    /// Gated delta net.
    DeltaNet(DeltaNet<B>),
}

/// What a layer reads and writes beside the workspace.
pub(crate) enum Memory<'a, B: Backend> {
    /// KV pool.
    Kv(&'a mut KvPool<B>),
    /// Convolution and recurrent state.
    State { conv: &'a mut Tensor<B>, recurrent: &'a mut Tensor<B> },
}

impl<B: Backend> Model<B> {
    /// Records a whole pass: every row of `inputs` goes through the layers, and the rows named in
    /// `inputs.out_rows` through the head. Afterwards `work.hidden` holds the normed hidden state of
    /// all rows, `work.logits` those of the output rows, `work.tokens` their argmax.
    ///
    /// # Errors
    /// Shape errors and what the backend cannot record.
    pub fn forward(
        &self,
        pass: &mut impl Ops<B>,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
        cache: &mut Cache<B>,
    ) -> Result<()> {
        self.embed(pass, inputs, work)?;
        for layer in 0..self.layers.len() {
            self.layer(pass, layer, inputs, work, cache)?;
        }
        self.final_norm(pass, work)?;
        self.head(pass, inputs, work)
    }

    /// `work.x = embed[ids]`.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn embed(
        &self,
        pass: &mut impl Ops<B>,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
    ) -> Result<()> {
        pass.embed(&inputs.ids, &self.embed, &mut work.x)
    }

    /// Main layer `index`: reads the residual stream `x + delta` (`x` alone for the first), leaves
    /// it there.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn layer(
        &self,
        pass: &mut impl Ops<B>,
        index: usize,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
        cache: &mut Cache<B>,
    ) -> Result<()> {
        let memory = cache.layer(index)?;
        self.layers[index].forward(pass, self, index == 0, inputs, work, memory)
    }

    /// `work.hidden = rms_norm(x + delta)`.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn final_norm(&self, pass: &mut impl Ops<B>, work: &mut Workspace<B>) -> Result<()> {
        let eps = self.config.rms_norm_eps;
        pass.add_rms_norm(&work.delta, &mut work.x, &self.norm, eps, &mut work.hidden)
    }

    /// Logits and argmax of the output rows of `work.hidden`.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn head(
        &self,
        pass: &mut impl Ops<B>,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
    ) -> Result<()> {
        let hidden = work.hidden.clone();
        self.project(pass, &hidden, inputs, work)
    }

    /// Logits and argmax of the output rows of `hidden`, a tensor of the workspace.
    fn project(
        &self,
        pass: &mut impl Ops<B>,
        hidden: &Tensor<B>,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
    ) -> Result<()> {
        if inputs.shape.outputs == 0 {
            return Ok(());
        }
        pass.gather_rows(hidden, &inputs.out_rows, &mut work.gathered)?;
        pass.linear(&work.gathered, &self.head, &mut work.logits)?;
        pass.argmax(&work.logits, &mut work.tokens)
    }
}

impl<B: Backend> Layer<B> {
    /// Mixer and feed-forward, each behind its norm. `first`: nothing waits in `work.delta`.
    pub(crate) fn forward(
        &self,
        pass: &mut impl Ops<B>,
        model: &Model<B>,
        first: bool,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
        memory: Memory<'_, B>,
    ) -> Result<()> {
        let eps = model.config.rms_norm_eps;
        if first {
            pass.rms_norm(&work.x, &self.attn_norm, eps, &mut work.normed)?;
        } else {
            let (x, normed) = (&mut work.x, &mut work.normed);
            pass.add_rms_norm(&work.delta, x, &self.attn_norm, eps, normed)?;
        }
        match (&self.mixer, memory) {
            (Mixer::Attention(mixer), Memory::Kv(pool)) => {
                mixer.forward(pass, model, inputs, work, pool)?;
            }
            (Mixer::DeltaNet(mixer), Memory::State { conv, recurrent }) => {
                mixer.forward(pass, model, inputs, work, conv, recurrent)?;
            }
            _ => return Err(crate::Error::invalid("cache", "layer kind differs from the model's")),
        }
        pass.add_rms_norm(&work.delta, &mut work.x, &self.ffn_norm, eps, &mut work.normed)?;
        self.feed_forward.forward(pass, work)
    }
}
