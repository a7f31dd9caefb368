//! Reading fields of Hugging Face JSON files, with errors that name file, field and value.

use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// Parses a JSON file whose top level must be an object.
pub(crate) fn parse_object(path: &Path, text: &str) -> Result<Map<String, Value>> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Error::format(
            path,
            "top level",
            format!("expected an object, found {}", brief(&other)),
        )),
        Err(error) => Err(Error::format(path, "json", error.to_string())),
    }
}

/// JSON text of `value`, cut to what fits in a message.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Objects searched in order: the first one that has a field (and not `null`) gives its value.
pub(crate) struct Fields<'a> {
    path: &'a Path,
    levels: Vec<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// Fields of the file `path`, innermost object first.
    pub(crate) fn new(
        path: &'a Path,
        levels: impl IntoIterator<Item = &'a Map<String, Value>>,
    ) -> Self {
        Self { path, levels: levels.into_iter().collect() }
    }

    /// File, for errors.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// True if any object has the key, `null` included.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.levels.iter().any(|level| level.contains_key(key))
    }

    /// The values of `key` that are not `null`, innermost first.
    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &'a Value> {
        self.levels.iter().filter_map(move |level| level.get(key)).filter(|value| !value.is_null())
    }

    /// The first value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.all(key).next()
    }

    /// [`Error::Format`] for a value of the wrong kind.
    pub(crate) fn wrong(&self, key: &str, value: &Value, expected: &str) -> Error {
        Error::format(self.path, key, format!("expected {expected}, found {}", brief(value)))
    }

    /// `T` of the first value of `key`, by `read`.
    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.get(key)
            .map(|value| read(value).ok_or_else(|| self.wrong(key, value, expected)))
            .transpose()
    }

    /// A count.
    pub(crate) fn size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a count", |value| value.as_u64().and_then(|v| usize::try_from(v).ok()))
    }

    /// A count that must be there.
    pub(crate) fn require_size(&self, key: &str) -> Result<usize> {
        self.size(key)?.ok_or_else(|| Error::format(self.path, key, "the field is missing"))
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// A flag.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A string.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>> {
        self.typed(key, "an object", Value::as_object)
    }

    /// Token ids: one, or a list. Every object that has the field contributes, without duplicates.
    pub(crate) fn token_ids(&self, key: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for value in self.all(key) {
            let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for item in items {
                let id = item
                    .as_u64()
                    .and_then(|v| u32::try_from(v).ok())
                    .ok_or_else(|| self.wrong(key, item, "a token id"))?;
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }
}
