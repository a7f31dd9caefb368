//! Metadata values of a GGUF file and their typed accessors.

use std::fmt;

/// A metadata value.
#[allow(missing_docs, reason = "each variant is the type of its value")]
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(GgufArray),
}

/// An array value. Arrays of arrays do not occur in model files and are refused by the reader.
#[allow(missing_docs, reason = "each variant is the type of its elements")]
#[derive(Clone, Debug, PartialEq)]
pub enum GgufArray {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    String(Vec<String>),
}

impl GgufValue {
    /// An integer of any type.
    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(v) => v.into(),
            Self::I8(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U64(v) => v.into(),
            Self::I64(v) => v.into(),
            _ => return None,
        })
    }
    /// An integer of any type that fits.
    pub fn as_u32(&self) -> Option<u32> {
        self.integer()?.try_into().ok()
    }
    /// An integer of any type that fits.
    pub fn as_u64(&self) -> Option<u64> {
        self.integer()?.try_into().ok()
    }
    /// An integer of any type that fits.
    pub fn as_i32(&self) -> Option<i32> {
        self.integer()?.try_into().ok()
    }
    /// An f32, or an f64 rounded to one.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => None,
        }
    }
    /// A bool.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }
    /// A string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(v) => Some(v),
            _ => None,
        }
    }
    /// An array.
    pub fn as_array(&self) -> Option<&GgufArray> {
        match self {
            Self::Array(v) => Some(v),
            _ => None,
        }
    }
    /// An array of strings.
    pub fn as_strings(&self) -> Option<&[String]> {
        match self {
            Self::Array(GgufArray::String(v)) => Some(v),
            _ => None,
        }
    }
    /// An array of integers of any type, all of which fit.
    pub fn as_u32s(&self) -> Option<Vec<u32>> {
        self.as_array()?.integers()
    }
    /// An array of integers of any type, all of which fit.
    pub fn as_i32s(&self) -> Option<Vec<i32>> {
        self.as_array()?.integers()
    }
    /// An array of f32, or of f64 rounded to f32.
    pub fn as_f32s(&self) -> Option<Vec<f32>> {
        match self.as_array()? {
            GgufArray::F32(v) => Some(v.clone()),
            GgufArray::F64(v) => Some(v.iter().map(|&x| x as f32).collect()),
            _ => None,
        }
    }
    /// An array of bools.
    pub fn as_bools(&self) -> Option<&[bool]> {
        match self {
            Self::Array(GgufArray::Bool(v)) => Some(v),
            _ => None,
        }
    }
    /// Name of the type: `u32`, `string`, `array of string`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(array) => array.type_name(),
        }
    }
}

impl GgufArray {
    /// Elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
        }
    }
    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All elements as `T`, if they are integers and fit.
    fn integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        fn cast<S: Copy + Into<i128>, T: TryFrom<i128>>(from: &[S]) -> Option<Vec<T>> {
            from.iter().map(|&v| T::try_from(v.into()).ok()).collect()
        }
        match self {
            Self::U8(v) => cast(v),
            Self::I8(v) => cast(v),
            Self::U16(v) => cast(v),
            Self::I16(v) => cast(v),
            Self::U32(v) => cast(v),
            Self::I32(v) => cast(v),
            Self::U64(v) => cast(v),
            Self::I64(v) => cast(v),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) => None,
        }
    }
    /// Name of the type: `array of u32`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "array of u8",
            Self::I8(_) => "array of i8",
            Self::U16(_) => "array of u16",
            Self::I16(_) => "array of i16",
            Self::U32(_) => "array of u32",
            Self::I32(_) => "array of i32",
            Self::U64(_) => "array of u64",
            Self::I64(_) => "array of i64",
            Self::F32(_) => "array of f32",
            Self::F64(_) => "array of f64",
            Self::Bool(_) => "array of bool",
            Self::String(_) => "array of string",
        }
    }
}

/// For people: scalars as they are, strings quoted, arrays as type and length.
impl fmt::Display for GgufValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U8(v) => v.fmt(f),
            Self::I8(v) => v.fmt(f),
            Self::U16(v) => v.fmt(f),
            Self::I16(v) => v.fmt(f),
            Self::U32(v) => v.fmt(f),
            Self::I32(v) => v.fmt(f),
            Self::U64(v) => v.fmt(f),
            Self::I64(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            Self::Bool(v) => v.fmt(f),
            Self::String(v) => write!(f, "{v:?}"),
            Self::Array(v) => write!(f, "{} ({} elements)", v.type_name(), v.len()),
        }
    }
}
