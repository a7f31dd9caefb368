//! Gated delta net: one projection to `q | k | v | z | b | a`, causal convolution, the delta rule,
//! gated norm, output projection.

use super::{Model, StepInputs, Workspace};
use crate::backend::{Backend, Weight};
use crate::error::{Error, Result};
use crate::ops::{CausalConv1d, GatedDeltaRule, Ops};
use crate::tensor::Tensor;

/// Weights of a delta net mixer.
pub struct DeltaNet<B: Backend> {
    /// `q k v | z | b | a` stacked.
    pub input: Weight<B>,
    /// Convolution taps `[channels, kernel]`.
    pub conv: Tensor<B>,
    /// `-exp(A_log)` and `dt_bias`, `[2, value_heads]`.
    pub head_constants: Tensor<B>,
    /// Gated norm `[value_dim]`.
    pub norm: Tensor<B>,
    /// `[H, value_heads * value_dim]`.
    pub out: Weight<B>,
}

impl<B: Backend> DeltaNet<B> {
    /// `work.delta = delta_net(work.normed)`; `conv` and `recurrent` advance by the rows.
    pub(super) fn forward(
        &self,
        pass: &mut impl Ops<B>,
        model: &Model<B>,
        inputs: &StepInputs<B>,
        work: &mut Workspace<B>,
        conv: &mut Tensor<B>,
        recurrent: &mut Tensor<B>,
    ) -> Result<()> {
        let config = model.config.delta_net.as_ref();
        let config = config.ok_or_else(|| Error::invalid("delta_net", "absent from the config"))?;
        let (channels, values) = (config.channels(), config.values());
        let gates_at = channels + values;

        let mut packed = work.packed.columns(0..gates_at + 2 * config.value_heads)?;
        pass.linear(&work.normed, &self.input, &mut packed)?;
        let mut qkv = work.convolved.columns(0..channels)?;
        pass.causal_conv1d(CausalConv1d {
            x: &packed.columns(0..channels)?,
            weight: &self.conv,
            state: conv,
            sequences: &inputs.sequences,
            out: &mut qkv,
        })?;
        let mut mixed = work.mixed.columns(0..values)?;
        pass.gated_delta_rule(GatedDeltaRule {
            qkv: &qkv,
            ba: &packed.columns(gates_at..gates_at + 2 * config.value_heads)?,
            head_constants: &self.head_constants,
            state: recurrent,
            sequences: &inputs.sequences,
            key_heads: config.key_heads,
            head_map: config.head_map,
            out: &mut mixed,
        })?;
        let z = packed.columns(channels..gates_at)?;
        let mut gated = work.gated.columns(0..values)?;
        pass.gated_rms_norm(&mixed, &z, &self.norm, model.config.rms_norm_eps, &mut gated)?;
        pass.linear(&gated, &self.out, &mut work.delta)
    }
}
