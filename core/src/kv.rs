//! Layout of the paged KV pool: one tensor of raw bytes per attention layer, the same on every
//! backend.
//!
//! A pool is `[blocks, block_bytes]`. A block holds [`BLOCK_TOKENS`] tokens:
//! `values[2][kv_heads][BLOCK_TOKENS][head_dim]` (plane 0 = keys after norm and rotation,
//! plane 1 = values), then for `q8_0` `scales[2][kv_heads][BLOCK_TOKENS][head_dim / group]` in f16,
//! `value = scale * int8`.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Tensor};
use serde::{Deserialize, Serialize};

/// Tokens in a KV block. Independent of the size of a recurrent state (design: prefix cache).
pub const BLOCK_TOKENS: usize = 16;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// 32-bit float: the reference, and tests.
    F32,
    /// 16-bit float.
    F16,
    /// bfloat16.
    Bf16,
    /// 8-bit integers with an f16 scale per group of up to 32 values.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 8-bit float e4m3 (saturating, no scale).
    Fp8,
}

impl std::str::FromStr for KvType {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Ok(match s {
            "f32" => Self::F32,
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "q8_0" => Self::Q8_0,
            "fp8" => Self::Fp8,
            _ => {
                return Err(Error::invalid(
                    "kv-type",
                    format!("{s}: use f32, f16, bf16, q8_0 or fp8"),
                ));
            }
        })
    }
}

/// Sizes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvLayout {
    /// Storage of a value.
    pub kv_type: KvType,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
}

impl KvLayout {
    /// Values that share a scale (`q8_0`).
    pub fn group(&self) -> usize {
        self.head_dim.min(32)
    }
    /// Bytes of one stored value.
    pub fn value_bytes(&self) -> usize {
        match self.kv_type {
            KvType::F32 => 4,
            KvType::F16 | KvType::Bf16 => 2,
            KvType::Q8_0 | KvType::Fp8 => 1,
        }
    }
    /// Values in a block: keys and values of all heads.
    pub fn block_values(&self) -> usize {
        2 * self.kv_heads * BLOCK_TOKENS * self.head_dim
    }
    /// Bytes of a block, scales included.
    pub fn block_bytes(&self) -> usize {
        let scales = match self.kv_type {
            KvType::Q8_0 => self.block_values() / self.group() * 2,
            _ => 0,
        };
        self.block_values() * self.value_bytes() + scales
    }
    /// Index (in values, from the start of the block) of the first value of a head.
    /// `plane` 0 = key, 1 = value.
    pub fn value_index(&self, plane: usize, head: usize, token: usize) -> usize {
        ((plane * self.kv_heads + head) * BLOCK_TOKENS + token) * self.head_dim
    }
    /// Byte offset in the block of the first scale of a head.
    pub fn scale_offset(&self, plane: usize, head: usize, token: usize) -> usize {
        self.block_values() * self.value_bytes()
            + self.value_index(plane, head, token) / self.group() * 2
    }
    /// Fails on head sizes that do not divide into groups.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn check(&self) -> Result<()> {
        if self.kv_type == KvType::Q8_0 && !self.head_dim.is_multiple_of(self.group()) {
            return Err(Error::unsupported(
                "kv type q8_0",
                format!("head size {} is not a multiple of 32; use f16", self.head_dim),
            ));
        }
        Ok(())
    }
}

/// The KV pool of one attention layer.
pub struct KvPool<B: Backend> {
    /// `[blocks, block_bytes]`, bytes.
    pub pages: Tensor<B>,
    /// Layout of a block.
    pub layout: KvLayout,
}

impl<B: Backend> Clone for KvPool<B> {
    fn clone(&self) -> Self {
        Self { pages: self.pages.clone(), layout: self.layout }
    }
}

impl<B: Backend> KvPool<B> {
    /// A zeroed pool.
    ///
    /// # Errors
    /// What [`KvLayout::check`] and the backend's allocation return.
    pub fn new(backend: &B, layout: KvLayout, blocks: usize) -> Result<Self> {
        layout.check()?;
        let shape = Shape::new(&[blocks, layout.block_bytes()]);
        Ok(Self { pages: backend.zeros(shape, DType::U8)?, layout })
    }
}
