//! Op cases, generic over the backend: each runs one op on the CPU reference and on the backend
//! with the same random values and compares. Outputs start as NaN, so an unwritten value shows.

pub mod attention;
pub mod delta;
pub mod linear;
pub mod moe;
pub mod rows;

use forge_core::backend::Backend;
use forge_core::reference::Cpu;
use forge_core::tensor::Tensor;
use forge_core::{DType, Shape};

/// A small deterministic generator (SplitMix64).
pub struct Random(u64);

impl Random {
    /// A stream.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }
    /// Next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// An integer below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    /// Roughly normal, standard deviation 1 (sum of uniforms).
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..6).map(|_| (self.bits() >> 40) as f32 / (1u64 << 24) as f32).sum();
        (sum - 3.0) * 1.414
    }
    /// `n` normal values times `scale`.
    pub fn normals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * scale).collect()
    }
}

/// The same tensor on the reference and on the backend under test.
pub struct Twin<B: Backend> {
    /// Reference.
    pub cpu: Tensor<Cpu>,
    /// Under test.
    pub device: Tensor<B>,
    /// The whole allocation behind a view with gaps.
    whole: (Tensor<Cpu>, Tensor<B>),
}

/// Both backends.
pub struct Pair<'a, B: Backend> {
    /// Reference.
    pub cpu: Cpu,
    /// Under test.
    pub device: &'a B,
}

impl<'a, B: Backend> Pair<'a, B> {
    /// Pairs the reference with a backend.
    pub fn new(device: &'a B) -> Self {
        Self { cpu: Cpu::new(), device }
    }

    fn make(&self, dtype: DType, dims: &[usize], bytes: &[u8]) -> (Tensor<Cpu>, Tensor<B>) {
        let shape = Shape::new(dims);
        let cpu = self.cpu.zeros(shape, dtype).unwrap();
        let device = self.device.zeros(shape, dtype).unwrap();
        self.cpu.write(&cpu, bytes).unwrap();
        self.device.write(&device, bytes).unwrap();
        (cpu, device)
    }

    /// A contiguous f32 tensor.
    pub fn floats(&self, dims: &[usize], values: &[f32]) -> Twin<B> {
        let (cpu, device) = self.make(DType::F32, dims, bytemuck::cast_slice(values));
        Twin { whole: (cpu.clone(), device.clone()), cpu, device }
    }

    /// A contiguous i32 tensor.
    pub fn ints(&self, dims: &[usize], values: &[i32]) -> Twin<B> {
        let (cpu, device) = self.make(DType::I32, dims, bytemuck::cast_slice(values));
        Twin { whole: (cpu.clone(), device.clone()), cpu, device }
    }

    /// Zeroed bytes.
    pub fn bytes(&self, dims: &[usize]) -> Twin<B> {
        let len = dims.iter().product();
        let (cpu, device) = self.make(DType::U8, dims, &vec![0; len]);
        Twin { whole: (cpu.clone(), device.clone()), cpu, device }
    }

    /// Random f32 `[rows, columns]`, with `gap` NaN columns on either side of each row.
    pub fn random(
        &self,
        random: &mut Random,
        rows: usize,
        columns: usize,
        gap: usize,
        scale: f32,
    ) -> Twin<B> {
        let width = columns + 2 * gap;
        let mut all = vec![f32::NAN; rows * width];
        for row in all.chunks_mut(width) {
            row[gap..gap + columns].copy_from_slice(&random.normals(columns, scale));
        }
        self.floats(&[rows, width], &all).columns(gap, columns)
    }

    /// NaN-filled f32 `[rows, columns]` with `gap` columns on either side.
    pub fn output(&self, rows: usize, columns: usize, gap: usize) -> Twin<B> {
        let width = columns + 2 * gap;
        self.floats(&[rows, width], &vec![f32::NAN; rows * width]).columns(gap, columns)
    }

    /// Records and runs on the backend under test twice: the second time is a replay.
    pub fn run(
        &self,
        cpu: impl FnOnce(&mut <Cpu as Backend>::Pass<'_>) -> forge_core::Result<()>,
        device: impl FnOnce(&mut B::Pass<'_>) -> forge_core::Result<()>,
    ) {
        let program = self.cpu.record(cpu).unwrap();
        self.cpu.submit(&program).unwrap();
        let program = self.device.record(device).unwrap();
        self.device.submit(&program).unwrap();
    }

    /// Values of a twin: `(reference, under test)`, gaps included; the gaps of both are compared
    /// bit for bit, because an op must not write there.
    pub fn values(&self, twin: &Twin<B>) -> (Vec<f32>, Vec<f32>) {
        let mut cpu = vec![0f32; twin.whole.0.shape.len()];
        let mut device = cpu.clone();
        self.cpu.read(&twin.whole.0, bytemuck::cast_slice_mut(&mut cpu)).unwrap();
        self.device.read(&twin.whole.1, bytemuck::cast_slice_mut(&mut device)).unwrap();
        let (start, columns) = (twin.cpu.offset, twin.cpu.row_len());
        let width = twin.cpu.row_stride;
        let inside = |i: usize| {
            let at = i % width.max(1);
            at >= start && at < start + columns
        };
        let mut kept = (Vec::new(), Vec::new());
        for i in 0..cpu.len() {
            if inside(i) {
                kept.0.push(cpu[i]);
                kept.1.push(device[i]);
            } else {
                assert_eq!(cpu[i].to_bits(), device[i].to_bits(), "wrote into the gap at {i}");
            }
        }
        kept
    }

    /// Compares an output within `tolerance` times the largest reference value.
    pub fn compare(&self, what: &str, twin: &Twin<B>, tolerance: f32) {
        let (expected, got) = self.values(twin);
        compare(what, &expected, &got, tolerance);
    }

    /// Compares i32 outputs exactly.
    pub fn compare_ints(&self, what: &str, twin: &Twin<B>) {
        let mut cpu = vec![0i32; twin.cpu.shape.len()];
        let mut device = cpu.clone();
        self.cpu.read(&twin.cpu, bytemuck::cast_slice_mut(&mut cpu)).unwrap();
        self.device.read(&twin.device, bytemuck::cast_slice_mut(&mut device)).unwrap();
        assert_eq!(cpu, device, "{what}");
    }

    /// Bytes of both.
    pub fn read_bytes(&self, twin: &Twin<B>) -> (Vec<u8>, Vec<u8>) {
        let mut cpu = vec![0u8; twin.cpu.shape.len() * twin.cpu.dtype.bytes()];
        let mut device = cpu.clone();
        self.cpu.read(&twin.cpu, &mut cpu).unwrap();
        self.device.read(&twin.device, &mut device).unwrap();
        (cpu, device)
    }
}

impl<B: Backend> Twin<B> {
    /// Columns `start..start + count`.
    pub fn columns(self, start: usize, count: usize) -> Self {
        Self {
            cpu: self.cpu.columns(start..start + count).unwrap(),
            device: self.device.columns(start..start + count).unwrap(),
            whole: self.whole,
        }
    }

    /// Another handle.
    pub fn share(&self) -> Self {
        Self {
            cpu: self.cpu.clone(),
            device: self.device.clone(),
            whole: (self.whole.0.clone(), self.whole.1.clone()),
        }
    }
}

/// Fails with the worst place unless all values agree within `tolerance * max(|expected|)`.
pub fn compare(what: &str, expected: &[f32], got: &[f32], tolerance: f32) {
    let largest = expected.iter().fold(1e-6f32, |m, v| m.max(v.abs()));
    let bound = tolerance * largest;
    let mut worst = (0, 0.0f32);
    for (i, (e, g)) in expected.iter().zip(got).enumerate() {
        let difference = if (e - g).is_nan() { f32::INFINITY } else { (e - g).abs() };
        if difference > worst.1 {
            worst = (i, difference);
        }
    }
    assert!(
        worst.1 <= bound,
        "{what}: value {} of {} is {} instead of {}, off by {} > {bound} (relative {:.2e})",
        worst.0,
        expected.len(),
        got[worst.0],
        expected[worst.0],
        worst.1,
        worst.1 / largest,
    );
}

/// A ragged batch: rows per sequence, tokens before the pass, padded sequences and rows.
#[derive(Clone, Debug)]
pub struct Ragged {
    /// `(rows, tokens before)` of each sequence.
    pub sequences: Vec<(usize, usize)>,
    /// Padded sequences.
    pub padded_sequences: usize,
    /// Padded rows.
    pub padded_rows: usize,
}

impl Ragged {
    /// Rows, padding included.
    pub fn rows(&self) -> usize {
        self.sequences.iter().map(|s| s.0).sum::<usize>() + self.padded_rows
    }
    /// Sequence table; slots are permuted.
    pub fn table(&self) -> Vec<i32> {
        let mut table = Vec::new();
        let mut first = 0;
        for (s, (rows, before)) in self.sequences.iter().enumerate() {
            let slot = self.slots() - 1 - s;
            table.extend([first, *rows, before + rows, slot].map(|v| v as i32));
            first += rows;
        }
        for _ in 0..self.padded_sequences {
            table.extend([first as i32, 0, 0, -1]);
        }
        table
    }
    /// Entries of the sequence table.
    pub fn count(&self) -> usize {
        self.sequences.len() + self.padded_sequences
    }
    /// State slots.
    pub fn slots(&self) -> usize {
        self.sequences.len() + 1
    }
    /// Shapes that have broken engines: one row, chunk borders, ragged mixes, padding.
    pub fn table_of_shapes() -> Vec<Self> {
        let plain = |sequences: &[(usize, usize)]| Self {
            sequences: sequences.to_vec(),
            padded_sequences: 0,
            padded_rows: 0,
        };
        let mut all = vec![
            plain(&[(1, 0)]),
            plain(&[(1, 1)]),
            plain(&[(2, 0)]),
            plain(&[(1, 37)]),
            plain(&[(1, 5), (1, 900), (1, 0), (1, 63)]),
            plain(&[(3, 40), (4, 0), (2, 7)]),
            plain(&[(63, 0)]),
            plain(&[(64, 0)]),
            plain(&[(65, 0)]),
            plain(&[(64, 64)]),
            plain(&[(130, 71)]),
            plain(&[(1, 20), (97, 33), (1, 64), (70, 0)]),
        ];
        all.push(Self { padded_sequences: 2, padded_rows: 3, ..all[4].clone() });
        all.push(Self { padded_sequences: 1, padded_rows: 17, ..all[11].clone() });
        all
    }
}
