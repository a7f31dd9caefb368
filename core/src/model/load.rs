//! Puts a checkpoint on a device.

use super::{Attention, DeltaNet, FeedForward, Layer, Mixer, Model, Mtp, frequencies};
use crate::backend::{Backend, Residence, Weight, upload_f32};
use crate::config::{FeedForwardConfig, LayerKind};
use crate::error::{Error, Result};
use crate::tensor::{Shape, Tensor};
use crate::weights::Checkpoint;
use crate::weights::host::HostTensor;

/// Progress of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Bytes of weights on the device so far.
    pub done_bytes: u64,
    /// Bytes of all weights.
    pub total_bytes: u64,
}

struct Loader<'a, B: Backend> {
    backend: &'a B,
    checkpoint: &'a Checkpoint,
    progress: &'a mut dyn FnMut(LoadProgress),
    state: LoadProgress,
}

/// Uploads all weights. `progress` is called after each.
///
/// # Errors
/// [`Error::MissingTensor`], [`Error::Unsupported`] for a storage type that the backend lacks,
/// device errors.
pub fn load<B: Backend>(
    backend: &B,
    checkpoint: &Checkpoint,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Model<B>> {
    let total_bytes = checkpoint.tensors.values().map(|t| t.data.len() as u64).sum();
    let state = LoadProgress { done_bytes: 0, total_bytes };
    let mut loader = Loader { backend, checkpoint, progress, state };
    let config = &checkpoint.config;
    let embed = loader.weight(&["embed"], Residence::Lookup)?;
    let head = if config.tied_embeddings { "embed" } else { "lm_head" };
    let head = loader.weight(&[head], Residence::Device)?;
    let layers = config
        .layers
        .iter()
        .enumerate()
        .map(|(i, kind)| loader.layer(&format!("layers.{i}."), *kind))
        .collect::<Result<_>>()?;
    let norm = loader.vector("norm")?;
    let divisors = match checkpoint.tensors.get("rope_freqs") {
        Some(tensor) => Some(tensor.to_f32()?),
        None => None,
    };
    let table = frequencies(&config.attention.rope, divisors.as_deref());
    let frequencies = upload_f32(backend, &table, Shape::new(&[table.len()]))?;
    let mtp = if config.mtp { Some(loader.mtp()?) } else { None };
    Ok(Model {
        config: config.clone(),
        embed,
        layers,
        norm,
        head,
        frequencies,
        mtp,
        weight_bytes: checkpoint.device_bytes(),
    })
}

impl<B: Backend> Loader<'_, B> {
    fn weight(&mut self, names: &[&str], residence: Residence) -> Result<Weight<B>> {
        let parts: Vec<HostTensor> =
            names.iter().map(|n| self.checkpoint.tensor(n).cloned()).collect::<Result<_>>()?;
        let weight = self.backend.upload(&parts, residence)?;
        self.state.done_bytes += weight.bytes;
        self.state.done_bytes = self.state.done_bytes.min(self.state.total_bytes);
        (self.progress)(self.state);
        Ok(weight)
    }

    fn matrix(&mut self, prefix: &str, names: &[&str]) -> Result<Weight<B>> {
        let names: Vec<String> = names.iter().map(|n| format!("{prefix}{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.weight(&names, Residence::Device)
    }

    fn values(&mut self, name: &str) -> Result<Vec<f32>> {
        let tensor = self.checkpoint.tensor(name)?;
        self.state.done_bytes += tensor.data.len() as u64;
        tensor.to_f32()
    }

    fn vector(&mut self, name: &str) -> Result<Tensor<B>> {
        let values = self.values(name)?;
        upload_f32(self.backend, &values, Shape::new(&[values.len()]))
    }

    fn layer(&mut self, prefix: &str, kind: LayerKind) -> Result<Layer<B>> {
        let attn_norm = self.vector(&format!("{prefix}attn_norm"))?;
        let mixer = match kind {
            LayerKind::Attention => Mixer::Attention(self.attention(&format!("{prefix}attn."))?),
            LayerKind::DeltaNet => Mixer::DeltaNet(self.delta_net(&format!("{prefix}delta."))?),
        };
        let ffn_norm = self.vector(&format!("{prefix}ffn_norm"))?;
        Ok(Layer { attn_norm, mixer, ffn_norm, feed_forward: self.feed_forward(prefix)? })
    }

    fn attention(&mut self, prefix: &str) -> Result<Attention<B>> {
        let qkv = self.matrix(prefix, &["q", "k", "v"])?;
        let o = self.matrix(prefix, &["o"])?;
        let norms = if self.checkpoint.config.attention.qk_norm {
            let q = self.vector(&format!("{prefix}q_norm"))?;
            Some((q, self.vector(&format!("{prefix}k_norm"))?))
        } else {
            None
        };
        Ok(Attention { qkv, o, norms })
    }

    fn delta_net(&mut self, prefix: &str) -> Result<DeltaNet<B>> {
        let config = self.checkpoint.config.delta_net.clone();
        let config = config.ok_or_else(|| Error::invalid("delta_net", "absent from the config"))?;
        let input = self.matrix(prefix, &["qkv", "z", "b", "a"])?;
        let conv = self.values(&format!("{prefix}conv"))?;
        let conv_shape = Shape::new(&[config.channels(), config.conv_kernel]);
        let mut constants = self.values(&format!("{prefix}neg_a"))?;
        constants.extend(self.values(&format!("{prefix}dt_bias"))?);
        let constants_shape = Shape::new(&[2, config.value_heads]);
        Ok(DeltaNet {
            input,
            conv: upload_f32(self.backend, &conv, conv_shape)?,
            head_constants: upload_f32(self.backend, &constants, constants_shape)?,
            norm: self.vector(&format!("{prefix}norm"))?,
            out: self.matrix(prefix, &["out"])?,
        })
    }

    fn feed_forward(&mut self, prefix: &str) -> Result<FeedForward<B>> {
        match self.checkpoint.config.feed_forward {
            FeedForwardConfig::Dense { .. } => Ok(FeedForward::Dense {
                gate_up: self.matrix(prefix, &["ffn.gate", "ffn.up"])?,
                down: self.matrix(prefix, &["ffn.down"])?,
            }),
            FeedForwardConfig::Moe { .. } => {
                let fused = format!("{prefix}moe.experts.gate_up");
                let gate_up: &[&str] = if self.checkpoint.tensors.contains_key(&fused) {
                    &["moe.experts.gate_up"]
                } else {
                    &["moe.experts.gate", "moe.experts.up"]
                };
                Ok(FeedForward::Moe {
                    router: self.matrix(prefix, &["moe.router"])?,
                    gate_up: self.matrix(prefix, gate_up)?,
                    down: self.matrix(prefix, &["moe.experts.down"])?,
                    shared_gate_up: self.matrix(prefix, &["moe.shared.gate", "moe.shared.up"])?,
                    shared_down: self.matrix(prefix, &["moe.shared.down"])?,
                    shared_gate: self.matrix(prefix, &["moe.shared_gate"])?,
                })
            }
        }
    }

    fn mtp(&mut self) -> Result<Mtp<B>> {
        Ok(Mtp {
            fc: self.matrix("mtp.", &["fc"])?,
            embed_norm: self.vector("mtp.embed_norm")?,
            hidden_norm: self.vector("mtp.hidden_norm")?,
            layer: self.layer("mtp.", LayerKind::Attention)?,
            norm: self.vector("mtp.norm")?,
        })
    }
}
