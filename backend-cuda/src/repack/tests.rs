//! Walks packed records with the index formulas of `kernels/records.cuh`, lane by lane, and expects
//! exactly the values that forge-core decodes from the file's blocks.

use super::*;
use forge_core::weights::quant::grids;
use half::f16;

/// The record under a lane, with the loads that kernels do.
struct Record<'a>(&'a [u8]);

impl Record<'_> {
    fn word(&self, at: usize) -> u32 {
        assert_eq!(at % 4, 0);
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }
    /// A 16-byte load.
    fn quad(&self, at: usize) -> [u32; 4] {
        assert_eq!(at % 16, 0);
        std::array::from_fn(|i| self.word(at + 4 * i))
    }
    fn half(word: u32, index: usize) -> f32 {
        f16::from_bits((word >> (16 * index)) as u16).to_f32()
    }
    fn plane8(&self, i: usize, lane: usize) -> [u32; 4] {
        self.quad(i * 512 + lane * 16)
    }
    fn plane4(&self, i: usize, lane: usize) -> [u32; 4] {
        let v = self.quad((i >> 1) * 512 + lane * 16);
        let w = if i & 1 == 1 { [v[2], v[3]] } else { [v[0], v[1]] };
        let m = 0x0f0f_0f0f;
        [w[0] & m, w[1] & m, w[0] >> 4 & m, w[1] >> 4 & m]
    }
    fn plane2(&self, at: usize, i: usize, lane: usize) -> [u32; 4] {
        let v = self.quad(at + (i >> 2) * 512 + lane * 16);
        let w = if i & 2 == 2 { [v[2], v[3]] } else { [v[0], v[1]] };
        let (s, m) = (4 * (i & 1), 0x0303_0303);
        [w[0] >> s & m, w[1] >> s & m, w[0] >> (s + 2) & m, w[1] >> (s + 2) & m]
    }
    fn plane1(&self, at: usize, i: usize, lane: usize) -> [u32; 4] {
        let v = self.quad(at + lane * 16);
        let w = if i & 4 == 4 { [v[2], v[3]] } else { [v[0], v[1]] };
        let (s, m) = (2 * (i & 3), 0x0101_0101);
        [w[0] >> s & m, w[1] >> s & m, w[0] >> (s + 1) & m, w[1] >> (s + 1) & m]
    }
    /// f16 number `i` of the row header at `at`.
    fn header_half(&self, at: usize, i: usize) -> f32 {
        Self::half(self.quad(at)[i >> 1], i & 1)
    }
}

fn bytes_of(words: [u32; 4], f: impl Fn(u8) -> i32) -> [[i32; 4]; 4] {
    words.map(|w| w.to_le_bytes().map(&f))
}

fn with_signs(magnitudes: [u8; 4], sign: u32, half: usize) -> [i32; 4] {
    let mask = sign | (sign.count_ones() & 1) << 7;
    std::array::from_fn(|j| {
        let negative = mask >> (4 * half + j) & 1 == 1;
        i32::from(magnitudes[j]) * if negative { -1 } else { 1 }
    })
}

fn half_row(row: u64, half: usize) -> [u8; 4] {
    row.to_le_bytes()[4 * half..4 * half + 4].try_into().unwrap()
}

/// Signed codes of group `i` that `lane` hands to the product.
fn lane_codes(storage: StorageType, record: &Record<'_>, i: usize, lane: usize) -> [[i32; 4]; 4] {
    use StorageType as S;
    let (g, t) = (lane / 4, lane % 4);
    let join = |a: [u32; 4], b: [u32; 4], shift: u32| std::array::from_fn(|j| a[j] | b[j] << shift);
    let plain = |offset: i32| move |byte: u8| i32::from(byte) - offset;
    match storage {
        S::Q8_0 => bytes_of(record.plane8(i, lane), |b| i32::from(b as i8)),
        S::Q4_0 => bytes_of(record.plane4(i, lane), plain(8)),
        S::Q4_1 | S::Q4_K => bytes_of(record.plane4(i, lane), plain(0)),
        S::Q5_0 | S::Q5_1 | S::Q5_K => {
            let words = join(record.plane4(i, lane), record.plane1(2048, i, lane), 4);
            bytes_of(words, plain(if storage == S::Q5_0 { 16 } else { 0 }))
        }
        S::Q2_K => bytes_of(record.plane2(0, i, lane), plain(0)),
        S::Q3_K => {
            let words = join(record.plane2(0, i, lane), record.plane1(1024, i, lane), 2);
            bytes_of(words, plain(4))
        }
        S::Q6_K => {
            let words = join(record.plane4(i, lane), record.plane2(2048, i, lane), 4);
            bytes_of(words, plain(32))
        }
        S::Iq4Nl | S::Iq4Xs => {
            bytes_of(record.plane4(i, lane), |b| i32::from(grids::IQ4_NL_VALUES[usize::from(b)]))
        }
        S::Mxfp4 => bytes_of(record.plane4(i, lane), |b| {
            i32::from(grids::MXFP4_DOUBLED_VALUES[usize::from(b)])
        }),
        S::Iq2Xxs => {
            let v = record.quad(i * 128 + g * 16);
            std::array::from_fn(|k| {
                let (l, r) = (2 * (k / 2) + (t >> 1), k % 2);
                let row = grids::IQ2_XXS_GRID[(v[2 * r] >> (8 * l) & 255) as usize];
                with_signs(half_row(row, t & 1), v[2 * r + 1] >> (7 * l) & 127, t & 1)
            })
        }
        S::Iq2Xs => {
            let v = record.quad(i * 128 + g * 16);
            std::array::from_fn(|k| {
                let word = v[2 * (k % 2) + k / 2] >> (16 * (t >> 1));
                let row = grids::IQ2_XS_GRID[(word & 511) as usize];
                with_signs(half_row(row, t & 1), word >> 9 & 127, t & 1)
            })
        }
        S::Iq3Xxs => {
            let index = record.quad((i >> 2) * 512 + lane * 16)[i & 3];
            let signs = [0, 1].map(|r| record.word(1024 + i * 64 + g * 8 + 4 * r));
            std::array::from_fn(|k| {
                let (h, r) = (k / 2, k % 2);
                let row = grids::IQ3_XXS_GRID[(index >> (16 * r + 8 * h) & 255) as usize];
                let shift = 7 * (t >> 1) + 14 * h;
                with_signs(row.to_le_bytes(), signs[r] >> shift & 127, t & 1)
            })
        }
        S::F32 | S::F16 | S::Bf16 => unreachable!(),
    }
}

/// Scale and minimum of group `i`, half `h`, row `g + 8 r`.
fn scale(
    storage: StorageType,
    record: &Record<'_>,
    i: usize,
    h: usize,
    g: usize,
    r: usize,
) -> (f32, f32) {
    use StorageType as S;
    let slot = 2 * g + r;
    let heads = |at: usize| Record::half(record.word(at + g * 4), r);
    let byte = |word: u32, k: usize| word >> (8 * k) & 255;
    match storage {
        S::Q8_0 => (record.header_half(2048 + g * 16, 4 * r + i), 0.0),
        S::Q4_0 | S::Iq4Nl => (record.header_half(2048 + slot * 16, i), 0.0),
        S::Q5_0 => (record.header_half(2560 + slot * 16, i), 0.0),
        S::Q4_1 | S::Q5_1 => {
            let at = if storage == S::Q4_1 { 2048 } else { 2560 } + slot * 32;
            (record.header_half(at, i), -record.header_half(at + 16, i))
        }
        S::Mxfp4 => {
            let e = byte(record.quad(2048 + g * 16)[2 * r + (i >> 2)], i & 3);
            (f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 }), 0.0)
        }
        S::Q4_K | S::Q5_K => {
            let v = record.quad(if storage == S::Q4_K { 2048 } else { 2560 } + slot * 16);
            let last = v[1] >> 6 & 0x0303_0303 | v[2] >> 4 & 0x0c0c_0c0c | v[3] >> 2 & 0x3030_3030;
            let sc = byte(v[1 + i / 4] & 0x3f3f_3f3f, i & 3);
            let mn = byte(if i < 4 { v[3] & 0x3f3f_3f3f } else { last }, i & 3);
            (Record::half(v[0], 0) * sc as f32, Record::half(v[0], 1) * mn as f32)
        }
        S::Q6_K => {
            let pair = record.quad(3072 + slot * 16)[i >> 1] >> (16 * (i & 1));
            (heads(3328) * f32::from(byte(pair, h) as u8 as i8), 0.0)
        }
        S::Q3_K => {
            let v = record.quad(1536 + slot * 16);
            let low = v[i >> 2] >> (8 * (i & 3) + 4 * h) & 15;
            let high = v[2] >> (4 * i + 2 * h) & 3;
            (Record::half(v[3], 0) * ((low | high << 4) as f32 - 32.0), 0.0)
        }
        S::Q2_K => {
            let pair = record.quad(1024 + slot * 16)[i >> 1] >> (16 * (i & 1));
            let (b, heads) = (byte(pair, h), record.word(1280 + slot * 4));
            (Record::half(heads, 0) * (b & 15) as f32, Record::half(heads, 1) * (b >> 4) as f32)
        }
        S::Iq4Xs => {
            let v = record.quad(2048 + g * 16);
            let (head, low) = (v[2 * r], v[2 * r + 1]);
            let s = low >> (4 * i) & 15 | (head >> (16 + 2 * i) & 3) << 4;
            (Record::half(head, 0) * (s as f32 - 32.0), 0.0)
        }
        S::Iq2Xxs => {
            let s = record.quad(i * 128 + g * 16)[2 * r + 1] >> 28;
            (heads(1024) * (0.5 + s as f32) * 0.25, 0.0)
        }
        S::Iq2Xs => {
            let b = byte(record.quad(1024 + g * 16)[2 * r + (i >> 2)], i & 3);
            (heads(1152) * (0.5 + (b >> (4 * h) & 15) as f32) * 0.25, 0.0)
        }
        S::Iq3Xxs => {
            let s = record.word(1024 + i * 64 + g * 8 + 4 * r) >> 28;
            (heads(1536) * (0.5 + s as f32) * 0.5, 0.0)
        }
        S::F32 | S::F16 | S::Bf16 => unreachable!(),
    }
}

/// All values of a packed tile, `[16, chunks * K]`, as the lanes of a warp see them.
fn unpack(storage: StorageType, tile: &[u8], scales: &[f32]) -> Vec<Vec<f32>> {
    let layout = Layout::of(storage);
    let mut rows = vec![vec![f32::NAN; tile.len() / layout.bytes * layout.columns]; TILE_ROWS];
    for (chunk, bytes) in tile.chunks_exact(layout.bytes).enumerate() {
        let (record, first) = (Record(bytes), chunk * layout.columns);
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            if block_packer(storage).is_none() {
                let parts = if storage == StorageType::F32 { 2 } else { 1 };
                for step in 0..4 / parts {
                    for (part, word) in (0..parts).flat_map(|p| (0..4).map(move |w| (p, w))) {
                        let v = record.quad((step * parts + part) * 512 + lane * 16)[word];
                        let (row, column) =
                            (g + 8 * (word % 2), first + step * 16 + 4 * t + word / 2 * 2);
                        for j in 0..2 {
                            let value = Record::half(v, j) * scales[row];
                            let target = &mut rows[row][column + j];
                            *target = if part == 0 { value } else { *target + value };
                        }
                    }
                }
                continue;
            }
            for i in 0..layout.columns / 32 {
                for (k, word) in lane_codes(storage, &record, i, lane).iter().enumerate() {
                    let (h, r) = (k / 2, k % 2);
                    let (d, m) = scale(storage, &record, i, h, g, r);
                    for (j, &code) in word.iter().enumerate() {
                        rows[g + 8 * r][first + 32 * i + 16 * h + 4 * t + j] = d * code as f32 - m;
                    }
                }
            }
        }
    }
    rows
}

/// Bytes of every pattern, but with finite scales: exponents of f16 fields are kept small.
fn random_rows(storage: StorageType, columns: usize, count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x1234_5678_9abc_def1u64 ^ storage.gguf_id() as u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let (values, block_bytes) = storage.block();
    let halves: &[usize] = match storage {
        StorageType::Q2_K => &[80, 82],
        StorageType::Q3_K => &[108],
        StorageType::Q6_K => &[208],
        StorageType::Q4_1 | StorageType::Q5_1 | StorageType::Q4_K | StorageType::Q5_K => &[0, 2],
        StorageType::Mxfp4 | StorageType::F32 | StorageType::Bf16 => &[],
        _ => &[0],
    };
    (0..count)
        .map(|_| {
            let mut row: Vec<u8> = (0..columns / values * block_bytes).map(|_| next()).collect();
            for block in row.chunks_exact_mut(block_bytes) {
                halves.iter().for_each(|&at| block[at + 1] &= 0xbf);
                match storage {
                    StorageType::Mxfp4 => block[0] %= 200,
                    // Values between 2^-6 and 2^2, with both signs.
                    StorageType::F32 | StorageType::Bf16 => {
                        let last = block.len() - 1;
                        block[last] = block[last] & 0x80 | 0x3f;
                    }
                    _ => {}
                }
            }
            row
        })
        .collect()
}

#[test]
fn lanes_see_the_values_of_the_file() {
    for storage in StorageType::ALL {
        // A row tile that is not full, and columns that do not fill the last record.
        for (count, columns) in [(16, 512), (11, 256), (5, storage.block().0.max(32))] {
            let rows = random_rows(storage, columns, count);
            let tile = packed(storage, &rows, columns);
            let unpacked = unpack(storage, &tile.0, &tile.1);
            for (slot, row) in rows.iter().enumerate() {
                let mut expected = vec![0.0; columns];
                storage.dequantize(row, &mut expected).unwrap();
                for (column, (got, expected)) in unpacked[slot].iter().zip(&expected).enumerate() {
                    let close = if storage == StorageType::F32 { 1e-6 } else { 0.0 };
                    let error = (got - expected).abs();
                    assert!(
                        error <= close * expected.abs(),
                        "{storage} {slot} {column}: {got} {expected}"
                    );
                }
                assert!(unpacked[slot][columns..].iter().all(|&v| v == 0.0), "{storage} tail");
            }
        }
    }
}

fn packed(storage: StorageType, rows: &[Vec<u8>], columns: usize) -> (Vec<u8>, [f32; TILE_ROWS]) {
    let mut tile = vec![0xaa; Layout::of(storage).tile_bytes(columns)];
    let mut scales = [f32::NAN; TILE_ROWS];
    let rows: Vec<_> = rows.iter().map(|row| (storage, row.as_slice())).collect();
    pack_tile(&rows, &mut tile, &mut scales);
    (tile, scales)
}

#[test]
fn scaled_values_fit_f16() {
    for storage in StorageType::ALL.into_iter().filter(|&s| s != StorageType::F16) {
        let rows = random_rows(storage, 512, 16);
        let (_, scales) = packed(storage, &rows, 512);
        for (row, scale) in rows.iter().zip(scales) {
            let mut values = vec![0.0; 512];
            storage.dequantize(row, &mut values).unwrap();
            let largest = values.iter().fold(0.0f32, |a, v| a.max(v.abs())) / scale;
            assert!((64.0..65504.0).contains(&largest), "{storage}: {largest}");
            assert_eq!(scale.to_bits() & 0x007f_ffff, 0, "{storage}: a power of two");
        }
    }
}

#[test]
fn records_take_the_bytes_of_their_blocks() {
    for storage in StorageType::ALL.into_iter().filter(|&s| s != StorageType::Q3_K) {
        let layout = Layout::of(storage);
        assert_eq!(Some(layout.bytes), storage.row_bytes(layout.columns).map(|b| b * TILE_ROWS));
        assert_eq!(layout.bytes % 16, 0);
    }
    // Q3_K rounds a header of 14 bytes up to 16.
    assert_eq!(Layout::of(StorageType::Q3_K).bytes, 16 * 112);
}

#[test]
fn row_scales_are_normal_powers_of_two() {
    for bound in [f32::MIN_POSITIVE, 1e-40, 1e-3, 1.0, 65504.0, f32::MAX] {
        let scale = row_scale(bound);
        assert!(scale.is_normal() && (1.0 / scale).is_normal(), "{bound}");
        assert!(bound / scale < 32768.0, "{bound}");
    }
    for bound in [0.0, f32::INFINITY, f32::NAN] {
        assert_eq!(row_scale(bound), 1.0);
    }
}
