//! A tensor of the new file, as rows and columns of a source tensor in another order.

use crate::error::Result;
use crate::weights::host::HostTensor;
use crate::weights::quant::StorageType;
use std::borrow::Cow;
use std::ops::Range;

/// A tensor of the new file.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// Name in the new file.
    pub(super) name: String,
    /// Canonical name in the new file.
    pub(super) canonical: String,
    /// Shape in the new file.
    pub(super) shape: Vec<usize>,
    /// What it is taken from.
    pub(super) tensor: HostTensor,
    /// Canonical name of that.
    pub(super) source: String,
    /// Source row of each row; `None` = the same.
    pub(super) rows: Option<Vec<u32>>,
    /// Source column of each column; `None` = the same.
    pub(super) columns: Option<Vec<u32>>,
}

impl View {
    /// The tensor as it is.
    pub(super) fn whole(name: &str, tensor: &HostTensor) -> Self {
        Self {
            name: name.to_owned(),
            canonical: name.to_owned(),
            shape: tensor.shape.clone(),
            tensor: tensor.clone(),
            source: name.to_owned(),
            rows: None,
            columns: None,
        }
    }

    /// Rows of the new tensor.
    pub(super) fn total_rows(&self) -> usize {
        self.rows.as_ref().map_or_else(|| self.tensor.total_rows(), Vec::len)
    }

    /// Values of a row.
    pub(super) fn row_values(&self) -> usize {
        self.tensor.columns()
    }

    /// Bytes of the new tensor in the source's type.
    pub(super) fn source_bytes(&self) -> u64 {
        self.total_rows() as u64 * self.tensor.row_bytes() as u64
    }

    /// Source row of row `row`.
    pub(super) fn source_row(&self, row: usize) -> usize {
        self.rows.as_ref().and_then(|rows| rows.get(row)).map_or(row, |&row| row as usize)
    }

    /// True if rows can be had in the source's type without decoding them: the columns move in
    /// whole blocks.
    pub(super) fn keeps_blocks(&self) -> bool {
        let (block, _) = self.tensor.storage.block();
        let Some(columns) = &self.columns else { return true };
        columns.chunks(block).all(|part| {
            let first = part.first().copied().unwrap_or(0);
            first as usize % block == 0 && part.iter().copied().eq(first..first + block as u32)
        })
    }

    /// Bytes of a row in the source's type; right if [`View::keeps_blocks`].
    pub(super) fn row(&self, row: usize) -> Cow<'_, [u8]> {
        let bytes = self.tensor.row_bytes();
        let start = self.source_row(row) * bytes;
        let stored = &self.tensor.data.as_slice()[start..start + bytes];
        let Some(columns) = &self.columns else { return Cow::Borrowed(stored) };
        let (values, block) = self.tensor.storage.block();
        let blocks = columns.iter().step_by(values).map(|&first| first as usize / values * block);
        Cow::Owned(blocks.flat_map(|start| &stored[start..start + block]).copied().collect())
    }

    /// Values of rows.
    ///
    /// # Errors
    /// Those of dequantising.
    pub(super) fn values(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        let columns = self.row_values();
        let mut values = vec![0.0; rows.len() * columns];
        for (row, out) in rows.zip(values.chunks_mut(columns.max(1))) {
            let bytes = self.tensor.row_bytes();
            let start = self.source_row(row) * bytes;
            let stored = &self.tensor.data.as_slice()[start..start + bytes];
            match &self.columns {
                None => self.tensor.storage.dequantize(stored, out)?,
                Some(order) => {
                    let mut plain = vec![0.0; columns];
                    self.tensor.storage.dequantize(stored, &mut plain)?;
                    out.iter_mut().zip(order).for_each(|(out, &from)| *out = plain[from as usize]);
                }
            }
        }
        Ok(values)
    }

    /// The part of an importance that is for the columns of a row, in their order. An importance
    /// has one value for each source column, of experts for each column of each expert.
    pub(super) fn row_importance<'a>(&self, importance: &'a [f32], row: usize) -> Cow<'a, [f32]> {
        let columns = self.row_values();
        let sets = (importance.len() / columns.max(1)).max(1);
        let rows_per_set = (self.tensor.total_rows() / sets).max(1);
        let set = (self.source_row(row) / rows_per_set).min(sets - 1);
        let own = &importance[set * columns..(set + 1) * columns];
        match &self.columns {
            None => Cow::Borrowed(own),
            Some(order) => Cow::Owned(order.iter().map(|&from| own[from as usize]).collect()),
        }
    }

    /// True if the bytes are copied: the type is the source's.
    pub(super) fn copies(&self, storage: StorageType) -> bool {
        storage == self.tensor.storage && self.keeps_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(rows: Option<Vec<u32>>, columns: Option<Vec<u32>>) -> View {
        let values: Vec<f32> = (0..192).map(|v| v as f32).collect();
        let plain = HostTensor::from_f32("t", vec![3, 64], &values).unwrap();
        View { rows, columns, ..View::whole("t", &plain) }
    }

    #[test]
    fn rows_and_columns_move() {
        let order: Vec<u32> = (32..64).chain(0..32).collect();
        let view = view(Some(vec![2, 0, 1]), Some(order));
        let values = view.values(0..2).unwrap();
        assert_eq!((values[0], values[32], values[64]), (160.0, 128.0, 32.0));
        let mut stored = [0.0; 64];
        StorageType::F32.dequantize(&view.row(0), &mut stored).unwrap();
        assert_eq!(stored, values[..64]);
        let importance: Vec<f32> = (0..64).map(|v| v as f32).collect();
        assert_eq!(view.row_importance(&importance, 1)[0], 32.0);
    }

    #[test]
    fn blocks_move_whole_or_not_at_all() {
        let mut order: Vec<u32> = (32..64).chain(0..32).collect();
        let mut moved = view(None, Some(order.clone()));
        let mut blocks = Vec::new();
        StorageType::Q8_0.quantize(&moved.tensor.to_f32().unwrap(), &mut blocks).unwrap();
        let quantised =
            HostTensor::new("t", StorageType::Q8_0, vec![3, 64], blocks.into()).unwrap();
        moved.tensor = quantised;
        assert!(moved.keeps_blocks() && moved.copies(StorageType::Q8_0));
        let mut from_blocks = vec![0.0; 64];
        StorageType::Q8_0.dequantize(&moved.row(1), &mut from_blocks).unwrap();
        assert_eq!(from_blocks, moved.values(1..2).unwrap());
        order.swap(0, 1);
        moved.columns = Some(order);
        assert!(!moved.keeps_blocks());
    }

    #[test]
    fn experts_have_an_importance_each() {
        let values = vec![0.0; 4 * 32];
        let tensor = HostTensor::from_f32("e", vec![2, 2, 32], &values).unwrap();
        let view = View { rows: Some(vec![3, 0]), ..View::whole("e", &tensor) };
        let importance: Vec<f32> = (0..64).map(|v| v as f32).collect();
        assert_eq!(view.row_importance(&importance, 0)[0], 32.0);
        assert_eq!(view.row_importance(&importance, 1)[0], 0.0);
    }
}
