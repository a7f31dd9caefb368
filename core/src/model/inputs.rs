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

/// Input tensors of a pass; see [`crate::ops`] for their meaning. All are views of one buffer, so
/// that a step costs one copy to the device.
pub struct StepInputs<B: Backend> {
    /// Sizes.
    pub shape: PassShape,
    /// Token ids, i32 `[R]`, -1 = padding.
    pub ids: Tensor<B>,
    /// Positions, i32 `[R]`, -1 = padding.
    pub positions: Tensor<B>,
    /// Rows of the KV pool written, i32 `[R]`, -1 = none.
    pub kv_rows: Tensor<B>,
    /// Rows that go through the head, i32 `[N]`, -1 = padding.
    pub out_rows: Tensor<B>,
    /// Sequence table, i32 `[S, 4]`.
    pub sequences: Tensor<B>,
    /// Block ids, i32 `[S, max_blocks]`.
    pub block_table: Tensor<B>,
    packed: Tensor<B>,
}

/// Views start at multiples of 256 bytes, WebGPU's default offset alignment.
const VIEW_ALIGNMENT: usize = 64;

/// Starts of the six views and the total, in elements.
fn view_starts(shape: PassShape, max_blocks: usize) -> ([usize; 6], usize) {
    let PassShape { rows, sequences, outputs } = shape;
    let lengths =
        [rows, rows, rows, outputs.max(1), sequences * SEQUENCE_FIELDS, sequences * max_blocks];
    let mut next = 0;
    let starts = lengths.map(|length| {
        let start = next;
        next += length.next_multiple_of(VIEW_ALIGNMENT);
        start
    });
    (starts, next)
}

impl<B: Backend> StepInputs<B> {
    /// Inputs for passes of at most `shape`.
    ///
    /// # Errors
    /// Allocation errors.
    pub fn new(backend: &B, shape: PassShape, max_blocks: usize) -> Result<Self> {
        let (_, total) = view_starts(shape, max_blocks);
        let packed = backend.zeros(Shape::new(&[total]), DType::I32)?;
        Ok(Self::over(packed, shape, max_blocks))
    }

    fn over(packed: Tensor<B>, shape: PassShape, max_blocks: usize) -> Self {
        let ([ids, positions, kv_rows, out_rows, sequences, blocks], _) =
            view_starts(shape, max_blocks);
        let view = |offset: usize, dims: &[usize]| {
            let shape = Shape::new(dims);
            Tensor { offset, shape, row_stride: shape.row_len(), ..packed.clone() }
        };
        Self {
            shape,
            ids: view(ids, &[shape.rows]),
            positions: view(positions, &[shape.rows]),
            kv_rows: view(kv_rows, &[shape.rows]),
            out_rows: view(out_rows, &[shape.outputs.max(1)]),
            sequences: view(sequences, &[shape.sequences, SEQUENCE_FIELDS]),
            block_table: view(blocks, &[shape.sequences, max_blocks]),
            packed,
        }
    }

    /// The same memory laid out for a smaller pass.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `shape` needs more memory.
    pub fn view(&self, shape: PassShape) -> Result<Self> {
        let max_blocks = self.block_table.row_len();
        if view_starts(shape, max_blocks).1 > self.packed.rows() {
            return Err(Error::invalid("pass", format!("{shape:?} exceeds {:?}", self.shape)));
        }
        Ok(Self::over(self.packed.clone(), shape, max_blocks))
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
            && batch.out_rows.len() <= self.shape.outputs
            && blocks <= max_blocks;
        if !fits {
            return Err(Error::invalid("batch", format!("larger than the pass {:?}", self.shape)));
        }
        let ([ids, positions, kv_rows, out_rows, sequences, table], total) =
            view_starts(self.shape, max_blocks);
        let mut all = vec![0i32; total];
        all[..sequences].fill(-1);
        let vectors = [
            (ids, &batch.ids),
            (positions, &batch.positions),
            (kv_rows, &batch.kv_rows),
            (out_rows, &batch.out_rows),
        ];
        for (start, values) in vectors {
            all[start..start + values.len()].copy_from_slice(values);
        }
        for s in 0..self.shape.sequences {
            let at = sequences + s * SEQUENCE_FIELDS;
            let line = match batch.sequences.get(s) {
                Some(s) => [s.first_row, s.rows, s.length, s.slot],
                None => [batch.ids.len() as i32, 0, 0, -1],
            };
            all[at..at + SEQUENCE_FIELDS].copy_from_slice(&line);
        }
        for (s, sequence) in batch.sequences.iter().enumerate() {
            let at = table + s * max_blocks;
            all[at..at + sequence.blocks.len()].copy_from_slice(&sequence.blocks);
        }
        backend.write(&self.packed.first_rows(total)?, bytemuck::cast_slice(&all))
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
