//! Scales of the formats that quantise the scales of their sub-blocks as well: the best scale of
//! each sub-block, their codes under a common factor, then factor and codes in turn until the
//! error falls no more.

use super::block::Half;
use super::fit::{Affine, Samples, Symmetric, extreme, reciprocal};

/// Values of a super-block.
pub(super) const VALUES: usize = 256;
/// Times that factor and codes are fitted to each other.
const ROUNDS: usize = 3;

/// Signed scale codes under one factor.
#[derive(Clone, Copy)]
pub(super) struct SignedScales<const SUBS: usize> {
    pub(super) d: Half,
    pub(super) codes: [i32; SUBS],
}

impl<const SUBS: usize> SignedScales<SUBS> {
    /// Factor and codes from `lowest` to `-lowest - 1` of least squared error.
    pub(super) fn fit<F: Fn(f32) -> f32>(
        x: Samples<'_>,
        levels: &Symmetric<F>,
        lowest: i32,
    ) -> Self {
        let size = VALUES / SUBS;
        let mut wanted = [0.0; SUBS];
        for (wanted, x) in wanted.iter_mut().zip(x.parts(size)) {
            *wanted = levels.scale(x);
        }
        let mut factor = extreme(&wanted) / lowest as f32;
        let mut best = Self { d: Half::from_f32(factor), codes: [0; SUBS] };
        let mut least = f32::INFINITY;
        for _ in 0..ROUNDS {
            let d = Half::from_f32(factor);
            let inverse = reciprocal(d.to_f32());
            let (mut codes, mut error) = ([0; SUBS], 0.0);
            let (mut cross, mut square) = (0.0, 0.0);
            for ((code, &wanted), x) in codes.iter_mut().zip(&wanted).zip(x.parts(size)) {
                let guess = (wanted * inverse).round() as i32;
                let mut sub_error = f32::INFINITY;
                for near in guess - 1..=guess + 1 {
                    let near = near.clamp(lowest, -lowest - 1);
                    let found = levels.error(x, d.to_f32() * near as f32);
                    if found < sub_error {
                        (sub_error, *code) = (found, near);
                    }
                }
                error += sub_error;
                let inverse = reciprocal(d.to_f32() * *code as f32);
                for (value, weight) in x.pairs() {
                    let level = *code as f32 * (levels.level)(value * inverse);
                    cross += weight * value * level;
                    square += weight * level * level;
                }
            }
            if error >= least {
                break;
            }
            (least, best) = (error, Self { d, codes });
            if square == 0.0 {
                break;
            }
            factor = cross / square;
        }
        best
    }

    /// Scale of sub-block `sub`.
    pub(super) fn scale(&self, sub: usize) -> f32 {
        self.d.to_f32() * self.codes[sub] as f32
    }
}

/// Codes of scales and of minimums under two factors.
#[derive(Clone, Copy)]
pub(super) struct AffineScales<const SUBS: usize> {
    pub(super) d: Half,
    pub(super) dmin: Half,
    pub(super) scales: [u8; SUBS],
    pub(super) minimums: [u8; SUBS],
}

/// Sums for the two factors of least squared error.
#[derive(Default)]
struct Normal {
    scale_scale: f32,
    scale_minimum: f32,
    minimum_minimum: f32,
    scale_value: f32,
    minimum_value: f32,
}

impl Normal {
    /// Adds a value that is stored as `d * scale - dmin * minimum`.
    fn add(&mut self, value: f32, weight: f32, scale: f32, minimum: f32) {
        self.scale_scale += weight * scale * scale;
        self.scale_minimum -= weight * scale * minimum;
        self.minimum_minimum += weight * minimum * minimum;
        self.scale_value += weight * value * scale;
        self.minimum_value -= weight * value * minimum;
    }

    /// Both factors, if they are unique and none is negative.
    fn solve(&self) -> Option<(f32, f32)> {
        if self.minimum_minimum == 0.0 {
            let d = self.scale_value / self.scale_scale;
            return (d > 0.0).then_some((d, 0.0));
        }
        let determinant =
            self.scale_scale * self.minimum_minimum - self.scale_minimum * self.scale_minimum;
        let d = (self.scale_value * self.minimum_minimum - self.minimum_value * self.scale_minimum)
            / determinant;
        let dmin = (self.minimum_value * self.scale_scale - self.scale_value * self.scale_minimum)
            / determinant;
        (d > 0.0 && dmin > 0.0).then_some((d, dmin))
    }
}

impl<const SUBS: usize> AffineScales<SUBS> {
    /// Factors and codes from 0 to `highest` of least squared error.
    pub(super) fn fit(x: Samples<'_>, levels: Affine, highest: i32) -> Self {
        let size = VALUES / SUBS;
        let mut wanted = [(0.0f32, 0.0f32); SUBS];
        for (wanted, x) in wanted.iter_mut().zip(x.parts(size)) {
            let (scale, offset) = levels.fit(x);
            *wanted = (scale, -offset);
        }
        let most = |pick: fn(&(f32, f32)) -> f32| wanted.iter().map(pick).fold(0.0, f32::max);
        let mut factors = (most(|w| w.0) / highest as f32, most(|w| w.1) / highest as f32);
        let mut best = Self::new(factors);
        let mut least = f32::INFINITY;
        for _ in 0..ROUNDS {
            let mut trial = Self::new(factors);
            let (mut normal, mut error) = (Normal::default(), 0.0);
            for (sub, (x, &wanted)) in x.parts(size).zip(&wanted).enumerate() {
                error += trial.choose(sub, x, levels, wanted, highest);
                let (scale, minimum) = trial.of(sub);
                let inverse = reciprocal(scale);
                for (value, weight) in x.pairs() {
                    let code = levels.code(value, inverse, -minimum);
                    let (sc, mn) = (f32::from(trial.scales[sub]), trial.minimums[sub]);
                    normal.add(value, weight, sc * code, f32::from(mn));
                }
            }
            if error >= least {
                break;
            }
            (least, best) = (error, trial);
            match normal.solve() {
                Some(fitted) => factors = fitted,
                None => break,
            }
        }
        best
    }

    fn new((d, dmin): (f32, f32)) -> Self {
        let (d, dmin) = (Half::from_f32(d), Half::from_f32(dmin));
        Self { d, dmin, scales: [0; SUBS], minimums: [0; SUBS] }
    }

    /// Takes the best codes near those of the wanted scale and minimum; returns the error.
    fn choose(
        &mut self,
        sub: usize,
        x: Samples<'_>,
        levels: Affine,
        (scale, minimum): (f32, f32),
        highest: i32,
    ) -> f32 {
        let (d, dmin) = (self.d.to_f32(), self.dmin.to_f32());
        let code = |wanted: f32, factor: f32| (wanted * reciprocal(factor)).round() as i32;
        let (scale, minimum) = (code(scale, d), code(minimum, dmin));
        let mut least = f32::INFINITY;
        for sc in scale - 1..=scale + 1 {
            for mn in minimum - 1..=minimum + 1 {
                let (sc, mn) = (sc.clamp(0, highest), mn.clamp(0, highest));
                let error = levels.error(x, (d * sc as f32, -(dmin * mn as f32)));
                if error < least {
                    least = error;
                    (self.scales[sub], self.minimums[sub]) = (sc as u8, mn as u8);
                }
            }
        }
        least
    }

    /// Scale and minimum of sub-block `sub`.
    pub(super) fn of(&self, sub: usize) -> (f32, f32) {
        let scale = self.d.to_f32() * f32::from(self.scales[sub]);
        (scale, self.dmin.to_f32() * f32::from(self.minimums[sub]))
    }

    /// Codes of all values.
    pub(super) fn codes(&self, values: &[f32; VALUES], levels: Affine) -> [u8; VALUES] {
        let size = VALUES / SUBS;
        std::array::from_fn(|at| {
            let (scale, minimum) = self.of(at / size);
            levels.code(values[at], reciprocal(scale), -minimum) as u8
        })
    }

    /// True if both factors fit a half float.
    pub(super) fn is_finite(&self) -> bool {
        self.d.is_finite() && self.dmin.is_finite()
    }
}

/// Packs 2 bits of 256 codes as Q2_K and Q3_K have them: a byte holds four codes that lie 32 apart.
pub(super) fn pack_pairs(codes: &[u8; VALUES]) -> [u8; 64] {
    std::array::from_fn(|at| {
        let first = 128 * (at / 32) + at % 32;
        (0..4).fold(0, |byte, plane| byte | (codes[first + 32 * plane] & 3) << (2 * plane))
    })
}

/// Packs 4 bits of 256 codes as Q4_K and Q5_K have them: each 32 bytes hold two sub-blocks of 32.
pub(super) fn pack_nibbles(codes: &[u8; VALUES]) -> [u8; 128] {
    std::array::from_fn(|at| {
        let first = 64 * (at / 32) + at % 32;
        (codes[first] & 15) | (codes[first + 32] & 15) << 4
    })
}

/// Packs one bit of 256 codes: bit `p` of byte `l` belongs to code `32 p + l`.
pub(super) fn pack_bits(codes: &[u8; VALUES], bit: u32) -> [u8; 32] {
    std::array::from_fn(|at| {
        (0..8).fold(0, |byte, plane| byte | (codes[at + 32 * plane] >> bit & 1) << plane)
    })
}
