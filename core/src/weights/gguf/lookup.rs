//! Typed look-ups of metadata keys. Each comes twice: `optional_*` is `None` for an absent key,
//! `require_*` fails; both fail if the value has another type or does not fit.

use super::{GgufFile, GgufValue};
use crate::error::{Error, Result};

const U32: &str = "an integer from 0 to 4294967295";

impl GgufFile {
    fn optional<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a GgufValue) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => {
                // A long text says nothing here, so only short values are repeated.
                let found = value.to_string();
                let found = if found.len() > 60 { value.type_name() } else { &found };
                Err(Error::format(&self.path, key, format!("is {found}, expected {expected}")))
            }
        }
    }

    fn present<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::format(&self.path, key, "metadata key is missing"))
    }

    /// An integer, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_u32(&self, key: &str) -> Result<Option<u32>> {
        self.optional(key, U32, GgufValue::as_u32)
    }
    /// An integer.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_u32(&self, key: &str) -> Result<u32> {
        self.present(key, self.optional_u32(key)?)
    }
    /// A float, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_f32(&self, key: &str) -> Result<Option<f32>> {
        self.optional(key, "a float", GgufValue::as_f32)
    }
    /// A float.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_f32(&self, key: &str) -> Result<f32> {
        self.present(key, self.optional_f32(key)?)
    }
    /// A bool, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_bool(&self, key: &str) -> Result<Option<bool>> {
        self.optional(key, "a bool", GgufValue::as_bool)
    }
    /// A bool.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_bool(&self, key: &str) -> Result<bool> {
        self.present(key, self.optional_bool(key)?)
    }
    /// A string, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_str(&self, key: &str) -> Result<Option<&str>> {
        self.optional(key, "a string", GgufValue::as_str)
    }
    /// A string.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_str(&self, key: &str) -> Result<&str> {
        self.present(key, self.optional_str(key)?)
    }
    /// An array of strings, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_strings(&self, key: &str) -> Result<Option<&[String]>> {
        self.optional(key, "an array of strings", GgufValue::as_strings)
    }
    /// An array of strings.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_strings(&self, key: &str) -> Result<&[String]> {
        self.present(key, self.optional_strings(key)?)
    }
    /// An array of unsigned integers, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.optional(key, "an array of integers from 0 to 4294967295", GgufValue::as_u32s)
    }
    /// An array of unsigned integers.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_u32s(&self, key: &str) -> Result<Vec<u32>> {
        self.present(key, self.optional_u32s(key)?)
    }
    /// An array of integers, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.optional(key, "an array of integers of 32 bits", GgufValue::as_i32s)
    }
    /// An array of integers.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_i32s(&self, key: &str) -> Result<Vec<i32>> {
        self.present(key, self.optional_i32s(key)?)
    }
    /// An array of floats, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.optional(key, "an array of floats", GgufValue::as_f32s)
    }
    /// An array of floats.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_f32s(&self, key: &str) -> Result<Vec<f32>> {
        self.present(key, self.optional_f32s(key)?)
    }
    /// An array of bools, if the key is there.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is something else.
    pub fn optional_bools(&self, key: &str) -> Result<Option<&[bool]>> {
        self.optional(key, "an array of bools", GgufValue::as_bools)
    }
    /// An array of bools.
    ///
    /// # Errors
    /// [`Error::Format`] naming file and key if it is absent or something else.
    pub fn require_bools(&self, key: &str) -> Result<&[bool]> {
        self.present(key, self.optional_bools(key)?)
    }
}
