//! KV pools and recurrent states of all layers: what a sequence leaves behind on the device.

use super::Memory;
use crate::backend::Backend;
use crate::config::{LayerKind, ModelConfig};
use crate::error::{Error, Result};
use crate::kv::{KvLayout, KvPool, KvType};
use crate::tensor::{DType, Shape, Tensor};

/// Sizes of a [`Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Blocks of each KV pool.
    pub blocks: usize,
    /// State slots.
    pub slots: usize,
    /// Storage of keys and values.
    pub kv_type: KvType,
}

/// Device memory of the sequences.
pub struct Cache<B: Backend> {
    /// Per main layer.
    pub(super) layers: Vec<LayerCache<B>>,
    /// KV of the MTP block.
    pub(super) mtp: Option<KvPool<B>>,
}

pub(super) enum LayerCache<B: Backend> {
    Attention(KvPool<B>),
    DeltaNet { conv: Tensor<B>, recurrent: Tensor<B> },
}

/// Layout of the KV pools of a model.
pub(crate) fn kv_layout(config: &ModelConfig, kv_type: KvType) -> KvLayout {
    let attention = &config.attention;
    KvLayout { kv_type, kv_heads: attention.kv_heads, head_dim: attention.head_dim }
}

impl<B: Backend> Cache<B> {
    /// Allocates pools and states.
    ///
    /// # Errors
    /// Allocation errors; a KV type that does not fit the head size.
    pub fn new(backend: &B, config: &ModelConfig, options: CacheOptions) -> Result<Self> {
        let layout = kv_layout(config, options.kv_type);
        let layer = |kind: &LayerKind| -> Result<LayerCache<B>> {
            match (kind, &config.delta_net) {
                (LayerKind::Attention, _) => {
                    Ok(LayerCache::Attention(KvPool::new(backend, layout, options.blocks)?))
                }
                (LayerKind::DeltaNet, Some(d)) => {
                    let conv = [options.slots, d.conv_kernel - 1, d.channels()];
                    let state = [options.slots, d.value_heads, d.key_dim, d.value_dim];
                    Ok(LayerCache::DeltaNet {
                        conv: backend.zeros(Shape::new(&conv), DType::F32)?,
                        recurrent: backend.zeros(Shape::new(&state), DType::F32)?,
                    })
                }
                (LayerKind::DeltaNet, None) => {
                    Err(Error::invalid("config", "delta net layers without their sizes"))
                }
            }
        };
        let layers = config.layers.iter().map(layer).collect::<Result<_>>()?;
        let mtp = config.mtp.then(|| KvPool::new(backend, layout, options.blocks)).transpose()?;
        Ok(Self { layers, mtp })
    }

    /// Bytes of one KV block over all layers, the MTP block included.
    pub fn block_bytes(config: &ModelConfig, kv_type: KvType) -> usize {
        let layers = config.attention_layers() + usize::from(config.mtp);
        kv_layout(config, kv_type).block_bytes() * layers
    }

    /// What layer `index` reads and writes.
    pub(super) fn layer(&mut self, index: usize) -> Result<Memory<'_, B>> {
        match self.layers.get_mut(index) {
            Some(LayerCache::Attention(pool)) => Ok(Memory::Kv(pool)),
            Some(LayerCache::DeltaNet { conv, recurrent }) => Ok(Memory::State { conv, recurrent }),
            None => Err(Error::invalid("cache", format!("no layer {index}"))),
        }
    }

    /// KV pool of the MTP block.
    pub(super) fn mtp(&mut self) -> Result<Memory<'_, B>> {
        self.mtp.as_mut().map(Memory::Kv).ok_or_else(|| Error::invalid("cache", "no mtp block"))
    }

    /// Convolution and recurrent state of main layer `index`, if it is a delta net layer.
    pub fn state(&self, index: usize) -> Option<(&Tensor<B>, &Tensor<B>)> {
        match self.layers.get(index)? {
            LayerCache::DeltaNet { conv, recurrent } => Some((conv, recurrent)),
            LayerCache::Attention(_) => None,
        }
    }

    /// KV pool of main layer `index`, if it is an attention layer.
    pub fn pool(&self, index: usize) -> Option<&KvPool<B>> {
        match self.layers.get(index)? {
            LayerCache::Attention(pool) => Some(pool),
            LayerCache::DeltaNet { .. } => None,
        }
    }
}
