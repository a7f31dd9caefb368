//! The draft head: one attention block over the next token's embedding and the main model's hidden
//! state. Row `t` takes token `t + 1` and hidden `t`, and predicts token `t + 2`.

use super::{Cache, Layer, Model, StepInputs, Workspace};
use crate::backend::{Backend, Weight};
use crate::error::{Error, Result};
use crate::ops::Ops;
use crate::tensor::Tensor;

/// Weights of the MTP block; embedding and head are the model's.
pub struct Mtp<B: Backend> {
    /// `[H, 2H]`, embedding half first.
    pub fc: Weight<B>,
    /// Norm of the embedding `[H]`.
    pub embed_norm: Tensor<B>,
    /// Norm of the hidden state `[H]`.
    pub hidden_norm: Tensor<B>,
    /// The block.
    pub layer: Layer<B>,
    /// Norm of the output `[H]`.
    pub norm: Tensor<B>,
}

/// Which hidden state feeds the MTP block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtpSource {
    /// `work.hidden`: rows of the main model, in the row order of the pass.
    Main,
    /// `work.mtp_hidden`: the block's own output, for chained drafts.
    Chain,
}

impl<B: Backend> Model<B> {
    /// Records a pass of the MTP block. `inputs.ids` holds, for each row, the token after it;
    /// positions and KV rows are those of the row. Leaves `work.mtp_hidden`, and for the output rows
    /// `work.logits` and `work.tokens`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an MTP block; as [`Model::forward`].
    pub fn mtp_forward(
        &self,
        pass: &mut impl Ops<B>,
        source: MtpSource,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
        cache: &mut Cache<B>,
    ) -> Result<()> {
        let mtp = self.mtp.as_ref();
        let mtp =
            mtp.ok_or_else(|| Error::unsupported("mtp", "the checkpoint has no MTP block"))?;
        let (hidden, eps) = (self.config.hidden_size, self.config.rms_norm_eps);
        pass.embed(&inputs.ids, &self.embed, &mut work.delta)?;
        let mut embedding_half = work.mtp_input.columns(0..hidden)?;
        let mut hidden_half = work.mtp_input.columns(hidden..2 * hidden)?;
        pass.rms_norm(&work.delta, &mtp.embed_norm, eps, &mut embedding_half)?;
        let source = match source {
            MtpSource::Main => &work.hidden,
            MtpSource::Chain => &work.mtp_hidden,
        };
        pass.rms_norm(source, &mtp.hidden_norm, eps, &mut hidden_half)?;
        pass.linear(&work.mtp_input, &mtp.fc, &mut work.x)?;
        mtp.layer.forward(pass, self, true, inputs, work, cache.mtp()?)?;
        pass.add_rms_norm(&work.delta, &mut work.x, &mtp.norm, eps, &mut work.mtp_hidden)?;
        let hidden = work.mtp_hidden.clone();
        self.project(pass, &hidden, inputs, work)
    }
}
