//! Which rows the next pass computes. Pure.

use super::sequence::{Sequence, Status};
use crate::model::{Batch, PassShape};

/// Rows of one running sequence in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Index in the running list.
    pub(super) index: usize,
    /// Rows.
    pub(super) rows: usize,
    /// Rows whose logits are wanted: 1 if all pending tokens are covered.
    pub(super) outputs: usize,
}

/// One row for every decoding sequence, then up to `prompt_rows` of prompts: the one that was served
/// longest ago first, so that no prompt waits for another's end. A chunk ends at the next cut.
pub(super) fn plan(running: &[Sequence], prompt_rows: usize, max_rows: usize) -> Vec<Planned> {
    let mut planned = Vec::new();
    for (index, sequence) in running.iter().enumerate() {
        if sequence.status == Status::Decode && sequence.pending() > 0 && planned.len() < max_rows {
            planned.push(Planned { index, rows: 1, outputs: usize::from(sequence.pending() == 1) });
        }
    }
    let mut room = prompt_rows.min(max_rows - planned.len());
    let prompts = running.iter().enumerate().filter(|(_, s)| s.status == Status::Prefill);
    let mut prompts: Vec<(usize, &Sequence)> = prompts.collect();
    prompts.sort_by_key(|(_, sequence)| (sequence.last_chunk, sequence.id));
    for (index, sequence) in prompts {
        let rows = sequence.rows_to_cut().min(room);
        if rows > 0 {
            let outputs = usize::from(rows == sequence.pending());
            planned.push(Planned { index, rows, outputs });
            room -= rows;
        }
    }
    planned
}

/// Row counts of passes that prompts may fill, ascending: those that programs are recorded for, or
/// powers of two.
pub(super) fn totals(max_rows: usize, buckets: &[usize]) -> Vec<usize> {
    let powers: Vec<usize> = (4..20).map(|power| 1 << power).collect();
    let all = if buckets.is_empty() { &powers } else { buckets };
    let mut totals: Vec<usize> = all.iter().copied().filter(|rows| *rows < max_rows).collect();
    totals.push(max_rows);
    totals
}

/// The batch of planned rows.
pub(super) fn batch(running: &[Sequence], planned: &[Planned]) -> Batch {
    let mut batch = Batch::default();
    for planned in planned {
        let sequence = &running[planned.index];
        let start = sequence.computed;
        let ids: Vec<i32> =
            sequence.tokens[start..start + planned.rows].iter().map(|t| t.0 as i32).collect();
        let blocks: Vec<i32> = sequence.blocks.iter().map(|b| b.0 as i32).collect();
        batch.push(&ids, start, sequence.slot.index(), &blocks, planned.outputs);
    }
    batch
}

/// The recorded shape that holds the batch: exact without buckets, else padded (at most to
/// `largest`) so that few programs serve all batches.
pub(super) fn shape(batch: &Batch, largest: PassShape, buckets: &[usize]) -> PassShape {
    let (rows, sequences) = (batch.ids.len(), batch.sequences.len());
    let outputs = batch.out_rows.len();
    let exact = PassShape { rows, sequences, outputs };
    if buckets.is_empty() {
        return exact;
    }
    let bucket = buckets.iter().copied().find(|b| *b >= rows).unwrap_or(largest.rows);
    if rows == sequences && rows == outputs {
        let rows = bucket.min(largest.sequences);
        return PassShape { rows, sequences: rows, outputs: rows };
    }
    let padded = |count: usize| if count > 1 { largest.sequences } else { count };
    PassShape {
        rows: bucket.min(largest.rows),
        sequences: padded(sequences),
        outputs: padded(outputs),
    }
}

/// All shapes that [`shape`] can return, largest first; none without buckets.
pub(super) fn shapes(largest: PassShape, buckets: &[usize]) -> Vec<PassShape> {
    let mut all = Vec::new();
    let mut add = |rows, sequences, outputs| all.push(PassShape { rows, sequences, outputs });
    let slots = largest.sequences;
    let fitting = buckets.iter().copied().filter(|b| *b < largest.rows);
    for rows in fitting.chain((!buckets.is_empty()).then_some(largest.rows)) {
        let decode = rows.min(slots);
        add(decode, decode, decode);
        for sequences in [1, slots] {
            for outputs in [0, 1, slots] {
                // More than one sequence or output takes more than one row.
                if outputs <= sequences && (rows > 1 || sequences == 1) {
                    add(rows, sequences, outputs);
                }
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use super::super::programs::CAPACITY;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_shape_holds_the_batch_and_fits_the_workspace(
            decode in 0usize..6, prompts in prop::collection::vec(1usize..300, 0..3),
            finishing in any::<bool>(), bucketed in any::<bool>(),
        ) {
            let largest = PassShape { rows: 1000, sequences: 9, outputs: 9 };
            let mut batch = Batch::default();
            for _ in 0..decode {
                batch.push(&[1], 0, 0, &[0], 1);
            }
            for rows in prompts {
                batch.push(&vec![1; rows], 0, 0, &[0; 20], usize::from(finishing));
            }
            let buckets: &[usize] = if bucketed { &[1, 2, 4, 8, 64, 512, 4096] } else { &[] };
            let shape = shape(&batch, largest, buckets);
            prop_assert!(shape.rows >= batch.ids.len() && shape.rows <= largest.rows);
            prop_assert!(shape.sequences >= batch.sequences.len() && shape.sequences <= 9);
            prop_assert!(shape.outputs >= batch.out_rows.len() && shape.outputs <= 9);
            let listed = shapes(largest, buckets);
            prop_assert!(!bucketed || batch.ids.is_empty() || listed.contains(&shape), "{shape:?}");
            prop_assert!(listed.len() <= CAPACITY && bucketed != listed.is_empty());
        }
    }
}
