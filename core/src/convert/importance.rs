//! What the columns of each matrix are worth: the mean squares of the inputs that they meet.

use super::view::View;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3;

/// Importance of the columns of matrices, by canonical name; of experts one set after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Importance {
    /// Name of the text that it was measured on.
    pub text: String,
    /// Mean squares.
    pub columns: BTreeMap<String, Vec<f32>>,
}

impl Importance {
    /// What is known of the source of a view; empty = nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it has the wrong length.
    pub(super) fn of(&self, view: &View) -> Result<&[f32]> {
        let Some(values) = self.columns.get(&view.source) else { return Ok(&[]) };
        let columns = view.row_values();
        let sets = values.len() / columns.max(1);
        let rows = view.tensor.total_rows();
        if sets == 0 || values.len() != sets * columns || !rows.is_multiple_of(sets) {
            let reason = format!("{} values for {rows} rows of {columns}", values.len());
            return Err(Error::invalid(format!("importance of {}", view.source), reason));
        }
        Ok(values)
    }

    pub(super) fn hash(&self, hash: &mut Xxh3) {
        for (name, values) in &self.columns {
            hash.update(name.as_bytes());
            hash.update(bytemuck::cast_slice(values));
        }
    }
}
