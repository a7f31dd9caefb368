//! Storage types of weights: block sizes, exact dequantisation, quantisation.
//! Byte layouts: `docs/ytf.md` and the GGUF specification.

use crate::error::{Error, Result};
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
        if columns % values != 0 {
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
        let _ = (bytes, out);
        Err(Error::unsupported(format!("type {self}"), "not written yet"))
    }

    /// Quantises `values` (whole blocks) into `out`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for types without a quantiser, [`Error::Invalid`] on wrong lengths or
    /// values that are not finite.
    pub fn quantize(self, values: &[f32], out: &mut Vec<u8>) -> Result<()> {
        let _ = (values, out);
        Err(Error::unsupported(format!("quantising to {self}"), "not written yet"))
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
