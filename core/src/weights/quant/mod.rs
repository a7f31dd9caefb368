//! Storage types of weights: block sizes, exact dequantisation, quantisation.
//! Byte layouts: `docs/ytf.md` and the GGUF specification.

mod block;
mod codebook;
mod dense;
mod fit;
pub mod grids;
mod iq2_xs;
mod iq2_xxs;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod super_block;
mod weights;

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use block::{decode_blocks, encode_blocks};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the values of a tensor are stored. Names are GGUF's, in lower case.
#[allow(missing_docs, non_camel_case_types, reason = "the names are the documentation")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Iq2Xxs,
    Iq2Xs,
    Iq3Xxs,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
}

impl StorageType {
    /// All types.
    pub const ALL: [Self; 19] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::Iq2Xxs,
        Self::Iq2Xs,
        Self::Iq3Xxs,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Mxfp4,
    ];

    /// Name as in GGUF, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q2_K => "q2_k",
            Self::Q3_K => "q3_k",
            Self::Q4_K => "q4_k",
            Self::Q5_K => "q5_k",
            Self::Q6_K => "q6_k",
            Self::Iq2Xxs => "iq2_xxs",
            Self::Iq2Xs => "iq2_xs",
            Self::Iq3Xxs => "iq3_xxs",
            Self::Iq4Nl => "iq4_nl",
            Self::Iq4Xs => "iq4_xs",
            Self::Mxfp4 => "mxfp4",
        }
    }

    /// GGUF type id.
    pub const fn gguf_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Bf16 => 30,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q2_K => 10,
            Self::Q3_K => 11,
            Self::Q4_K => 12,
            Self::Q5_K => 13,
            Self::Q6_K => 14,
            Self::Iq2Xxs => 16,
            Self::Iq2Xs => 17,
            Self::Iq3Xxs => 18,
            Self::Iq4Nl => 20,
            Self::Iq4Xs => 23,
            Self::Mxfp4 => 39,
        }
    }

    /// Type of a GGUF id, if supported.
    pub fn from_gguf_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.gguf_id() == id)
    }

    /// Values and bytes of a block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Mxfp4 => (32, 17),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
            Self::Iq2Xxs => (256, 66),
            Self::Iq2Xs => (256, 74),
            Self::Iq3Xxs => (256, 98),
            Self::Iq4Xs => (256, 136),
        }
    }

    /// Bytes of a row of `columns` values; `None` if that is not a whole number of blocks.
    pub const fn row_bytes(self, columns: usize) -> Option<usize> {
        let (values, bytes) = self.block();
        if !columns.is_multiple_of(values) {
            return None;
        }
        (columns / values).checked_mul(bytes)
    }

    /// Bytes of a tensor; `None` on rank 0 or above 4, broken blocks, or overflow.
    pub fn tensor_bytes(self, shape: &[usize]) -> Option<usize> {
        let (&columns, outer) = shape.split_last()?;
        if shape.len() > 4 {
            return None;
        }
        let rows = outer.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim))?;
        self.row_bytes(columns)?.checked_mul(rows)
    }

    /// Exact f32 values of whole blocks: the formulas of the format, evaluated left to right.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `bytes` and `out` disagree or hold a broken block.
    pub fn dequantize(self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        if self.row_bytes(out.len()) != Some(bytes.len()) {
            let (values, block_bytes) = self.block();
            return Err(Error::invalid(
                format!("dequantising {self}"),
                format!(
                    "{} bytes for {} values; a block of {values} values has {block_bytes} bytes",
                    bytes.len(),
                    out.len()
                ),
            ));
        }
        self.decode(bytes, out);
        Ok(())
    }

    /// [`StorageType::dequantize`] without its checks: decodes as many whole blocks as both sides
    /// hold. Inlined, so that a caller compiled for a wider instruction set gets it vectorised for
    /// that set; the values are the same either way.
    #[inline(always)]
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => decode_blocks::<dense::F32, _>(bytes, out),
            Self::F16 => decode_blocks::<block::Half, _>(bytes, out),
            Self::Bf16 => decode_blocks::<dense::Bf16, _>(bytes, out),
            Self::Q4_0 => decode_blocks::<q4_0::Q4_0, _>(bytes, out),
            Self::Q4_1 => decode_blocks::<q4_1::Q4_1, _>(bytes, out),
            Self::Q5_0 => decode_blocks::<q5_0::Q5_0, _>(bytes, out),
            Self::Q5_1 => decode_blocks::<q5_1::Q5_1, _>(bytes, out),
            Self::Q8_0 => decode_blocks::<q8_0::Q8_0, _>(bytes, out),
            Self::Q2_K => decode_blocks::<q2_k::Q2K, _>(bytes, out),
            Self::Q3_K => decode_blocks::<q3_k::Q3K, _>(bytes, out),
            Self::Q4_K => decode_blocks::<q4_k::Q4K, _>(bytes, out),
            Self::Q5_K => decode_blocks::<q5_k::Q5K, _>(bytes, out),
            Self::Q6_K => decode_blocks::<q6_k::Q6K, _>(bytes, out),
            Self::Iq2Xxs => decode_blocks::<iq2_xxs::Iq2Xxs, _>(bytes, out),
            Self::Iq2Xs => decode_blocks::<iq2_xs::Iq2Xs, _>(bytes, out),
            Self::Iq3Xxs => decode_blocks::<iq3_xxs::Iq3Xxs, _>(bytes, out),
            Self::Iq4Nl => decode_blocks::<iq4_nl::Iq4Nl, _>(bytes, out),
            Self::Iq4Xs => decode_blocks::<iq4_xs::Iq4Xs, _>(bytes, out),
            Self::Mxfp4 => decode_blocks::<mxfp4::Mxfp4, _>(bytes, out),
        }
    }

    /// Quantises `values` (whole blocks) and appends the blocks to `out`. F16 and BF16 round to
    /// nearest even, Q8_0 gives the bits that GGUF's own quantiser gives, and the types of fewer
    /// bits search for the scales and codes of least squared error.
    ///
    /// # Errors
    /// [`Error::Invalid`] on wrong lengths, values that are not finite, or values beyond the range
    /// of the type; `out` is then unchanged.
    pub fn quantize(self, values: &[f32], out: &mut Vec<u8>) -> Result<()> {
        self.quantize_weighted(values, &[], out)
    }

    /// [`StorageType::quantize`] of rows of `importance.len()` values: the squared error of a value
    /// counts as much as its column's importance says. With the mean squares of the inputs that the
    /// columns meet, this is the error of the outputs. Empty = all columns count the same.
    ///
    /// # Errors
    /// As [`StorageType::quantize`], and [`Error::Invalid`] if the importance is no whole number of
    /// blocks, or holds a value that is negative or not finite.
    pub fn quantize_weighted(
        self,
        values: &[f32],
        importance: &[f32],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let what = || format!("quantising to {self}");
        let block_values = self.block().0;
        let whole = |count: usize| count.is_multiple_of(block_values);
        if !whole(values.len()) || !whole(importance.len()) {
            let reason = format!(
                "{} values with {} weights are not whole blocks of {block_values}",
                values.len(),
                importance.len()
            );
            return Err(Error::invalid(what(), reason));
        }
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::invalid(what(), format!("value {index} is {}", values[index])));
        }
        let weights = weights::usable(importance).map_err(|index| {
            Error::invalid(what(), format!("importance {index} is {}", importance[index]))
        })?;
        let start = out.len();
        self.encode(values, &weights, out).map_err(|index| {
            out.truncate(start);
            let reason = format!("a value of the block at {index} is beyond the range of the type");
            Error::invalid(what(), reason)
        })
    }

    fn encode(self, x: &[f32], w: &[f32], out: &mut Vec<u8>) -> std::result::Result<(), usize> {
        match self {
            Self::F32 => encode_blocks(x, w, out, dense::encode_f32),
            Self::F16 => encode_blocks(x, w, out, dense::encode_f16),
            Self::Bf16 => encode_blocks(x, w, out, dense::encode_bf16),
            Self::Q4_0 => encode_blocks(x, w, out, q4_0::encode),
            Self::Q4_1 => encode_blocks(x, w, out, q4_1::encode),
            Self::Q5_0 => encode_blocks(x, w, out, q5_0::encode),
            Self::Q5_1 => encode_blocks(x, w, out, q5_1::encode),
            Self::Q8_0 => encode_blocks(x, w, out, q8_0::encode),
            Self::Q2_K => encode_blocks(x, w, out, q2_k::encode),
            Self::Q3_K => encode_blocks(x, w, out, q3_k::encode),
            Self::Q4_K => encode_blocks(x, w, out, q4_k::encode),
            Self::Q5_K => encode_blocks(x, w, out, q5_k::encode),
            Self::Q6_K => encode_blocks(x, w, out, q6_k::encode),
            Self::Iq2Xxs => encode_blocks(x, w, out, iq2_xxs::encode),
            Self::Iq2Xs => encode_blocks(x, w, out, iq2_xs::encode),
            Self::Iq3Xxs => encode_blocks(x, w, out, iq3_xxs::encode),
            Self::Iq4Nl => encode_blocks(x, w, out, iq4_nl::encode),
            Self::Iq4Xs => encode_blocks(x, w, out, iq4_xs::encode),
            Self::Mxfp4 => encode_blocks(x, w, out, mxfp4::encode),
        }
    }
}

impl fmt::Display for StorageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for StorageType {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let lower = s.to_ascii_lowercase();
        Self::ALL.into_iter().find(|t| t.name() == lower).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|t| t.name()).collect();
            Error::invalid("type", format!("{s}: use one of {}", names.join(", ")))
        })
    }
}
