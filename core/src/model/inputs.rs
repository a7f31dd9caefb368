//! What changes from step to step: small tensors that are rewritten before each submit.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ops::SEQUENCE_FIELDS;
use crate::tensor::{DType, Shape, Tensor};

/// The sizes a program is recorded for. Nothing else about a pass is fixed at recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PassShape {
    /// Token rows, padding included.
    pub rows: usize,
    /// Sequences, padding included.
    pub sequences: usize,
    /// Rows whose logits are computed, padding included.
    pub outputs: usize,
}

/// Input tensors of a pass; see [`crate::ops`] for their meaning.
pub struct StepInputs<B: Backend> {
    /// Sizes.
    pub shape: PassShape,
    /// Token ids, i32 `[R]`, -1 = padding.
    pub ids: Tensor<B>,
    /// Positions, i32 `[R]`, -1 = padding.
    pub positions: Tensor<B>,
    /// Rows of the KV pool written, i32 `[R]`, -1 = none.
    pub kv_rows: Tensor<B>,
    /// Sequence table, i32 `[S, 4]`.
    pub sequences: Tensor<B>,
    /// Block ids, i32 `[S, max_blocks]`.
    pub block_table: Tensor<B>,
    /// Rows that go through the head, i32 `[N]`, -1 = padding.
    pub out_rows: Tensor<B>,
}

impl<B: Backend> StepInputs<B> {
    /// Inputs for passes of at most `shape`.
    ///
    /// # Errors
    /// Allocation errors.
    pub fn new(backend: &B, shape: PassShape, max_blocks: usize) -> Result<Self> {
        let ints = |dims: &[usize]| backend.zeros(Shape::new(dims), DType::I32);
        Ok(Self {
            shape,
            ids: ints(&[shape.rows])?,
            positions: ints(&[shape.rows])?,
            kv_rows: ints(&[shape.rows])?,
            sequences: ints(&[shape.sequences, SEQUENCE_FIELDS])?,
            block_table: ints(&[shape.sequences, max_blocks])?,
            out_rows: ints(&[shape.outputs.max(1)])?,
        })
    }

    /// The first rows of these tensors, for a smaller pass.
    ///
    /// # Errors
    /// Shape error if `shape` is larger.
    pub fn view(&self, shape: PassShape) -> Result<Self> {
        Ok(Self {
            shape,
            ids: self.ids.first_rows(shape.rows)?,
            positions: self.positions.first_rows(shape.rows)?,
            kv_rows: self.kv_rows.first_rows(shape.rows)?,
            sequences: self.sequences.first_rows(shape.sequences)?,
            block_table: self.block_table.first_rows(shape.sequences)?,
            out_rows: self.out_rows.first_rows(shape.outputs.max(1))?,
        })
    }

    /// Writes a batch into the tensors, padding them to the shape.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the batch is larger than the shape; device errors.
    pub fn write(&self, backend: &B, batch: &Batch) -> Result<()> {
        let max_blocks = self.block_table.row_len();
        let blocks = batch.sequences.iter().map(|s| s.blocks.len()).max().unwrap_or(0);
        let fits = batch.ids.len() <= self.shape.rows
            && batch.sequences.len() <= self.shape.sequences
            && batch.out_rows.len() <= self.shape.outputs.max(1)
            && blocks <= max_blocks;
        if !fits {
            return Err(Error::invalid("batch", format!("larger than the pass {:?}", self.shape)));
        }
        let padded = |values: &[i32], len: usize, fill: i32| -> Vec<i32> {
            let mut all = values.to_vec();
            all.resize(len, fill);
            all
        };
        let put = |tensor: &Tensor<B>, values: &[i32]| {
            backend.write(tensor, bytemuck::cast_slice(values))
        };
        put(&self.ids, &padded(&batch.ids, self.shape.rows, -1))?;
        put(&self.positions, &padded(&batch.positions, self.shape.rows, -1))?;
        put(&self.kv_rows, &padded(&batch.kv_rows, self.shape.rows, -1))?;
        put(&self.out_rows, &padded(&batch.out_rows, self.shape.outputs.max(1), -1))?;
        let mut table = Vec::with_capacity(self.shape.sequences * SEQUENCE_FIELDS);
        let mut block_table = Vec::with_capacity(self.shape.sequences * max_blocks);
        for sequence in &batch.sequences {
            table.extend([sequence.first_row, sequence.rows, sequence.length, sequence.slot]);
            block_table.extend(padded(&sequence.blocks, max_blocks, 0));
        }
        let padding = self.shape.sequences - batch.sequences.len();
        for _ in 0..padding {
            table.extend([batch.ids.len() as i32, 0, 0, -1]);
        }
        put(&self.sequences, &table)?;
        put(&self.block_table, &block_table)
    }
}

/// The content of a pass, on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token of each row.
    pub ids: Vec<i32>,
    /// Position of each row.
    pub positions: Vec<i32>,
    /// KV pool row of each row.
    pub kv_rows: Vec<i32>,
    /// Rows that go through the head.
    pub out_rows: Vec<i32>,
    /// Sequences, rows in order.
    pub sequences: Vec<BatchSequence>,
}

/// A sequence of a [`Batch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchSequence {
    /// First row.
    pub first_row: i32,
    /// Rows.
    pub rows: i32,
    /// Tokens up to and including this pass.
    pub length: i32,
    /// State slot.
    pub slot: i32,
    /// KV blocks covering `length` tokens.
    pub blocks: Vec<i32>,
}

impl Batch {
    /// Appends `ids` of one sequence that continues at position `start`. `outputs` says which of
    /// its last rows need logits.
    pub fn push(&mut self, ids: &[i32], start: usize, slot: usize, blocks: &[i32], outputs: usize) {
        let first_row = self.ids.len();
        for (i, id) in ids.iter().enumerate() {
            let position = start + i;
            let block = blocks[position / crate::kv::BLOCK_TOKENS] as usize;
            let kv_row = block * crate::kv::BLOCK_TOKENS + position % crate::kv::BLOCK_TOKENS;
            self.ids.push(*id);
            self.positions.push(position as i32);
            self.kv_rows.push(kv_row as i32);
        }
        let last = self.ids.len();
        self.out_rows.extend((last - outputs..last).map(|row| row as i32));
        self.sequences.push(BatchSequence {
            first_row: first_row as i32,
            rows: ids.len() as i32,
            length: (start + ids.len()) as i32,
            slot: slot as i32,
            blocks: blocks.to_vec(),
        });
    }
}
