//! One tensor: decoded, encoded, written, read back and compared, a batch of rows at a time.

use super::check::{Differences, compare};
use super::part::{Done, Part, Place};
use super::view::View;
use crate::error::{Error, Result};
use crate::weights::quant::StorageType;
use rayon::prelude::*;
use std::ops::Range;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Values that one task converts at a time.
const TASK_VALUES: usize = 1 << 16;
/// Values that are converted before they are written: the memory that a conversion takes.
const BATCH_VALUES: usize = 1 << 23;

/// Rows that are handled together.
pub(super) fn batches(view: &View) -> impl Iterator<Item = Range<usize>> {
    let (rows, size) = (view.total_rows(), rows_of(view, BATCH_VALUES));
    (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
}

fn rows_of(view: &View, values: usize) -> usize {
    (values / view.row_values().max(1)).max(1)
}

/// A tensor to write.
pub(super) struct Task<'a> {
    pub(super) path: &'a Path,
    pub(super) view: &'a View,
    pub(super) storage: StorageType,
    pub(super) importance: &'a [f32],
}

impl Task<'_> {
    /// Writes the tensor, reads it back and compares it. `install` runs parallel work.
    pub(super) fn run(
        &self,
        part: &mut Part,
        place: &Place,
        report: &mut dyn FnMut(&Range<usize>) -> Result<()>,
        install: impl Fn(&mut (dyn FnMut() -> Result<()> + Send)) -> Result<()>,
    ) -> Result<Done> {
        let mut hash = Xxh3::new();
        part.begin(place)?;
        for rows in batches(self.view) {
            report(&rows)?;
            let mut encoded = Vec::new();
            install(&mut || {
                encoded = self.encode(rows.clone())?;
                Ok(())
            })?;
            part.write(&encoded)?;
            hash.update(&encoded);
        }
        let row_bytes = self.storage.row_bytes(self.view.row_values()).unwrap_or(0);
        let mut all = Differences::default();
        for rows in batches(self.view) {
            let mut bytes = vec![0; rows.len() * row_bytes];
            part.read(place, (rows.start * row_bytes) as u64, &mut bytes)?;
            install(&mut || {
                all = all.merge(compare(self.view, self.storage, rows.clone(), &bytes)?);
                Ok(())
            })?;
        }
        let (tensor, checksum) = (place.name.clone(), hash.digest());
        Ok(Done { tensor, checksum, deviation: all.deviation() })
    }

    /// The bytes of rows in the new type.
    fn encode(&self, rows: Range<usize>) -> Result<Vec<u8>> {
        let Self { view, storage, .. } = *self;
        if view.copies(storage) {
            let rows = rows.map(|row| view.row(row));
            return Ok(rows.fold(Vec::new(), |mut all, row| {
                all.extend_from_slice(&row);
                all
            }));
        }
        let columns = view.row_values();
        let Some(row_bytes) = storage.row_bytes(columns) else {
            return Err(self.fault(format!("rows of {columns} do not fit type {storage}")));
        };
        let mut out = vec![0; row_bytes * rows.len()];
        let task_rows = rows_of(view, TASK_VALUES);
        let targets = out.par_chunks_mut((task_rows * row_bytes).max(1));
        targets.enumerate().try_for_each(|(task, target)| {
            let first = rows.start + task * task_rows;
            let rows = first..first + target.len() / row_bytes.max(1);
            let values = view.values(rows.clone())?;
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let place = first * columns + at;
                return Err(
                    self.fault(format!("value {} at index {place} is not finite", values[at]))
                );
            }
            let mut encoded = Vec::with_capacity(target.len());
            for (row, values) in rows.zip(values.chunks(columns.max(1))) {
                let importance = match self.importance {
                    [] => Default::default(),
                    importance => view.row_importance(importance, row),
                };
                let result = storage.quantize_weighted(values, &importance, &mut encoded);
                result.map_err(|error| self.fault(error.to_string()))?;
            }
            if encoded.len() != target.len() {
                let reason = format!("{storage} made {} bytes of {}", encoded.len(), target.len());
                return Err(self.fault(reason));
            }
            target.copy_from_slice(&encoded);
            Ok(())
        })?;
        Ok(out)
    }

    fn fault(&self, reason: String) -> Error {
        Error::format(self.path, &*self.view.tensor.name, reason)
    }
}
