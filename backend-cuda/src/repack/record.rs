//! Writing one row of a record: see `kernels/records.cuh` for the order of its bytes.

/// Row `g + 8 r` of a record of 16 rows.
pub(super) struct Row<'a> {
    pub(super) record: &'a mut [u8],
    pub(super) g: usize,
    pub(super) r: usize,
}

impl Row<'_> {
    /// The four bytes of lane `4 g + t` that hold word `word` of the 512 bytes at `at`.
    fn word(&mut self, at: usize, t: usize, word: usize) -> &mut [u8] {
        let start = at + (4 * self.g + t) * 16 + word * 4;
        &mut self.record[start..start + 4]
    }
    /// Bytes of this row in a header plane of `bytes` a row that starts at `at`.
    pub(super) fn header(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        let start = at + (2 * self.g + self.r) * bytes;
        &mut self.record[start..start + bytes]
    }
    /// Whole bytes of group `i`.
    pub(super) fn plane8(&mut self, at: usize, i: usize, codes: &[u8]) {
        let r = self.r;
        for t in 0..4 {
            self.word(at + i * 512, t, r).copy_from_slice(&codes[4 * t..4 * t + 4]);
            self.word(at + i * 512, t, 2 + r).copy_from_slice(&codes[16 + 4 * t..20 + 4 * t]);
        }
    }
    /// Codes below 16 of group `i`.
    pub(super) fn plane4(&mut self, at: usize, i: usize, codes: &[u8; 32]) {
        let word = i % 2 * 2 + self.r;
        self.merge(at + i / 2 * 512, word, codes, 0, 4);
    }
    /// Codes below 4 of group `i`.
    pub(super) fn plane2(&mut self, at: usize, i: usize, codes: &[u8; 32]) {
        let word = i / 2 % 2 * 2 + self.r;
        self.merge(at + i / 4 * 512, word, codes, 4 * (i % 2), 2);
    }
    /// Codes below 2 of group `i`.
    pub(super) fn plane1(&mut self, at: usize, i: usize, codes: &[u8; 32]) {
        let word = i / 4 * 2 + self.r;
        self.merge(at, word, codes, 2 * (i % 4), 1);
    }
    /// Adds columns 4t.. at bit `shift` and columns 16 + 4t.. `step` bits higher.
    fn merge(&mut self, at: usize, word: usize, codes: &[u8; 32], shift: usize, step: usize) {
        for t in 0..4 {
            let target = self.word(at, t, word);
            for (j, byte) in target.iter_mut().enumerate() {
                *byte |= codes[4 * t + j] << shift | codes[16 + 4 * t + j] << (shift + step);
            }
        }
    }
}

/// Little-endian number at byte `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Little-endian number at byte `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Magnitude of the f16 at byte `at`.
pub(super) fn half_magnitude(bytes: &[u8], at: usize) -> f32 {
    half::f16::from_bits(u16_at(bytes, at)).to_f32().abs()
}

/// The 32 codes of 16 bytes: low nibbles first.
pub(super) fn nibbles(bytes: &[u8]) -> [u8; 32] {
    let mut codes = [0; 32];
    for (j, byte) in bytes[..16].iter().enumerate() {
        codes[j] = byte & 15;
        codes[j + 16] = byte >> 4;
    }
    codes
}

/// `f(0), f(1), ..`.
pub(super) fn codes(f: impl Fn(usize) -> u8) -> [u8; 32] {
    std::array::from_fn(f)
}
