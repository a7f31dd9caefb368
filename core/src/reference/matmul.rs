//! Products of activations with stored weights: the one heavy kernel of the CPU backend.

use crate::error::{Error, Result};
use crate::weights::quant::StorageType;
use rayon::prelude::*;

#[cfg(test)]
mod tests;

/// Partial sums of a dot product: column `c` is added to sum `c % LANES`, in order of columns, and
/// the sums are folded in halves. Every path keeps to this, so a result depends on its weight row
/// and its activation row alone.
const LANES: usize = 16;
/// Activation rows that share a decoded weight row. 64 rows of 4096 columns are 1 MiB, which stays
/// in a second-level cache.
const PANEL_ROWS: usize = 64;
/// Multiplications below which a task is not worth handing to another thread (some 10 us).
const TASK_PRODUCTS: usize = 1 << 16;

type Lanes = [f32; LANES];

/// `out[r, o] = sum_c W[o, c] * x[r, c]`, accumulated in f32. `W` is `[out_rows, columns]` in blocks
/// of its storage type; it is decoded a few rows at a time.
#[derive(Clone, Copy)]
pub(crate) struct Matmul<'a> {
    /// Storage type of the weights.
    pub(crate) storage: StorageType,
    /// Exactly the blocks of `out_rows` weight rows.
    pub(crate) weights: &'a [u8],
    /// Weight rows, which are the values of an output row.
    pub(crate) out_rows: usize,
    /// Values of a weight row and of an activation row.
    pub(crate) columns: usize,
    /// Activation rows, row `r` at `r * x_stride`.
    pub(crate) x: &'a [f32],
    /// Values from one activation row to the next.
    pub(crate) x_stride: usize,
    /// Activation rows.
    pub(crate) rows: usize,
}

impl Matmul<'_> {
    /// Writes row `r` of the result to `out[r * out_stride..][..out_rows]` and leaves the rest of
    /// `out` as it is. The bits of a row do not depend on the other rows nor on the threads.
    ///
    /// # Errors
    /// [`Error::Shape`] if a slice is too short or the weights are not `out_rows` whole rows.
    pub(crate) fn run(&self, out: &mut [f32], out_stride: usize) -> Result<()> {
        self.check(out.len(), out_stride)?;
        if self.rows == 0 || self.out_rows == 0 {
            return Ok(());
        }
        let instructions = Instructions::detect();
        for first in (0..self.rows).step_by(PANEL_ROWS) {
            let rows = PANEL_ROWS.min(self.rows - first);
            let panel = Self { x: &self.x[first * self.x_stride..], rows, ..*self };
            panel.run_panel(instructions, &mut out[first * out_stride..], out_stride);
        }
        Ok(())
    }

    fn check(&self, out_len: usize, out_stride: usize) -> Result<()> {
        let error = |tensor, expected: usize, got: usize| Error::Shape {
            op: "linear",
            tensor,
            expected: format!("at least {expected} values"),
            got: format!("{got}"),
        };
        let span = |stride: usize, row: usize| match self.rows {
            0 => 0,
            rows => (rows - 1).saturating_mul(stride).saturating_add(row),
        };
        let bytes = self.storage.tensor_bytes(&[self.out_rows, self.columns]);
        if bytes != Some(self.weights.len()) {
            return Err(Error::Shape {
                op: "linear",
                tensor: "w",
                expected: format!("{}[{}, {}]", self.storage, self.out_rows, self.columns),
                got: format!("{} bytes", self.weights.len()),
            });
        }
        let x_len = span(self.x_stride, self.columns);
        if self.x.len() < x_len {
            return Err(error("x", x_len, self.x.len()));
        }
        let needed = span(out_stride, self.out_rows);
        if out_len < needed || (self.rows > 1 && out_stride < self.out_rows) {
            return Err(error("out", needed, out_len));
        }
        Ok(())
    }

    /// At most [`PANEL_ROWS`] rows. Threads take contiguous ranges of weight rows; a range of a
    /// single activation row is a range of `out`, else it is computed aside and copied.
    fn run_panel(&self, instructions: Instructions, out: &mut [f32], out_stride: usize) {
        let products = self.columns.max(1) * self.rows;
        let smallest = TASK_PRODUCTS.div_ceil(products);
        let share = self.out_rows.div_ceil(4 * rayon::current_num_threads());
        let task_rows = share.max(smallest).next_multiple_of(4);
        if self.rows == 1 {
            return self.run_tasks(instructions, task_rows, &mut out[..self.out_rows]);
        }
        let mut aside = vec![0.0; self.rows * self.out_rows];
        self.run_tasks(instructions, task_rows, &mut aside);
        for (r, row) in out.chunks_mut(out_stride).take(self.rows).enumerate() {
            let parts = row[..self.out_rows].chunks_mut(task_rows);
            for (part, task) in parts.zip(aside.chunks(task_rows * self.rows)) {
                part.copy_from_slice(&task[r * part.len()..][..part.len()]);
            }
        }
    }

    /// Splits `out` into tasks of `task_rows` weight rows, each `[rows, task_rows]` by itself.
    fn run_tasks(&self, instructions: Instructions, task_rows: usize, out: &mut [f32]) {
        if task_rows >= self.out_rows {
            return instructions.run(self, 0, out, &mut Vec::new());
        }
        out.par_chunks_mut(task_rows * self.rows)
            .enumerate()
            .for_each_init(Vec::new, |scratch, (task, out)| {
                instructions.run(self, task * task_rows, out, scratch)
            });
    }

    /// The weight rows from `first` on, as many as fill `out` `[rows, count]`; `W` of them at a time
    /// against `X` activation rows at a time, which only decides how often values are loaded.
    #[inline(always)]
    fn task<const W: usize, const X: usize, const FUSED: bool>(
        &self,
        first: usize,
        out: &mut [f32],
        scratch: &mut Vec<f32>,
        decode: impl Fn(&[u8], &mut [f32]) + Copy,
    ) {
        let count = out.len() / self.rows;
        let stride = self.columns.next_multiple_of(LANES);
        scratch.resize(W * stride, 0.0);
        let mut done = 0;
        while done + W <= count {
            self.strip::<W, X, FUSED>(first + done, done, out, scratch, decode);
            done += W;
        }
        for done in done..count {
            self.strip::<1, X, FUSED>(first + done, done, out, scratch, decode);
        }
    }

    /// `W` weight rows from `row` on against all activation rows, into column `column` of `out`.
    #[inline(always)]
    fn strip<const W: usize, const X: usize, const FUSED: bool>(
        &self,
        row: usize,
        column: usize,
        out: &mut [f32],
        scratch: &mut [f32],
        decode: impl Fn(&[u8], &mut [f32]),
    ) {
        let count = out.len() / self.rows;
        let row_bytes = self.weights.len() / self.out_rows;
        let stride = self.columns.next_multiple_of(LANES);
        let blocks = self.weights[row * row_bytes..].chunks_exact(row_bytes.max(1));
        for (blocks, values) in blocks.zip(scratch.chunks_exact_mut(stride.max(1))).take(W) {
            decode(blocks, &mut values[..self.columns]);
        }
        let weights: [&[f32]; W] = std::array::from_fn(|i| &scratch[i * stride..][..stride]);
        let mut done = 0;
        while done + X <= self.rows {
            let x = std::array::from_fn(|j| self.x_row(done + j));
            let sums = tile::<W, X, FUSED>(weights, x);
            for (j, sums) in sums.iter().enumerate() {
                out[(done + j) * count + column..][..W].copy_from_slice(sums);
            }
            done += X;
        }
        for r in done..self.rows {
            let [sums] = tile::<W, 1, FUSED>(weights, [self.x_row(r)]);
            out[r * count + column..][..W].copy_from_slice(&sums);
        }
    }

    #[inline(always)]
    fn x_row(&self, r: usize) -> &[f32] {
        &self.x[r * self.x_stride..][..self.columns]
    }
}

/// Dot products of each of `X` activation rows with each of `W` weight rows; the weight rows are
/// padded with zeros to whole lanes.
#[inline(always)]
fn tile<const W: usize, const X: usize, const FUSED: bool>(
    weights: [&[f32]; W],
    x: [&[f32]; X],
) -> [[f32; W]; X] {
    let mut sums = [[[0.0; LANES]; W]; X];
    let length = x.iter().map(|row| row.len()).min().unwrap_or(0);
    let whole = length / LANES;
    let weights = weights.map(|row| row.as_chunks::<LANES>().0);
    let full = weights.map(|row| &row[..whole]);
    let x_full = x.map(|row| &row.as_chunks::<LANES>().0[..whole]);
    for chunk in 0..whole {
        for (sums, x) in sums.iter_mut().zip(x_full) {
            for (sums, weights) in sums.iter_mut().zip(full) {
                multiply_add::<FUSED>(&weights[chunk], &x[chunk], sums);
            }
        }
    }
    if length % LANES != 0 {
        for (sums, x) in sums.iter_mut().zip(x) {
            let mut rest = [0.0; LANES];
            rest[..length % LANES].copy_from_slice(&x[whole * LANES..length]);
            for (sums, weights) in sums.iter_mut().zip(weights) {
                multiply_add::<FUSED>(&weights[whole], &rest, sums);
            }
        }
    }
    sums.map(|sums| sums.map(fold))
}

#[inline(always)]
fn multiply_add<const FUSED: bool>(weights: &Lanes, x: &Lanes, sums: &mut Lanes) {
    for lane in 0..LANES {
        sums[lane] = if FUSED {
            weights[lane].mul_add(x[lane], sums[lane])
        } else {
            weights[lane] * x[lane] + sums[lane]
        };
    }
}

/// Sum of the lanes: the upper half is added to the lower one until one is left. Not inlined, since
/// its pattern of narrowing halves would be imposed on the registers of the loops before it.
#[inline(never)]
fn fold(mut sums: Lanes) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    sums[0]
}

/// Instruction sets that the kernel is compiled for. One process uses one of them throughout, since
/// a fused multiply-add rounds once where two instructions round twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Baseline,
}

impl Instructions {
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
            {
                return Self::Avx512;
            }
            if avx2 {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }

    /// [`Matmul::task`] with these instructions, which [`Instructions::detect`] has found.
    fn run(self, op: &Matmul<'_>, first: usize, out: &mut [f32], scratch: &mut Vec<f32>) {
        match self {
            // SAFETY: a value of this variant comes from `detect` on a CPU with these features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { task_avx512(op, first, out, scratch) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { task_avx2(op, first, out, scratch) },
            // Fused multiply-add is part of the aarch64 baseline, not of the x86-64 one.
            Self::Baseline => {
                const FUSED: bool = cfg!(target_arch = "aarch64");
                let decode = |blocks: &[u8], values: &mut [f32]| op.storage.decode(blocks, values);
                op.task::<2, 2, FUSED>(first, out, scratch, decode);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
fn task_avx512(op: &Matmul<'_>, first: usize, out: &mut [f32], scratch: &mut Vec<f32>) {
    let decode = |blocks: &[u8], values: &mut [f32]| decode_avx512(op.storage, blocks, values);
    op.task::<4, 4, true>(first, out, scratch, decode);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn task_avx2(op: &Matmul<'_>, first: usize, out: &mut [f32], scratch: &mut Vec<f32>) {
    let decode = |blocks: &[u8], values: &mut [f32]| decode_avx2(op.storage, blocks, values);
    op.task::<2, 2, true>(first, out, scratch, decode);
}

/// A function of its own, so that the compiler sees blocks and values that do not overlap.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
#[inline(never)]
fn decode_avx512(storage: StorageType, blocks: &[u8], values: &mut [f32]) {
    storage.decode(blocks, values);
}

/// As [`decode_avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline(never)]
fn decode_avx2(storage: StorageType, blocks: &[u8], values: &mut [f32]) {
    storage.decode(blocks, values);
}
