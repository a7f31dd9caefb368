//! Scales of the quantisers, by search: each candidate scale gives codes, the codes give the scale
//! of least squared error, and the candidate with the smallest error wins.

/// Candidates on each side of the scale that spans the block exactly.
const STEPS: i32 = 6;
/// Times that the best scale is rounded to codes and fitted again: each lowers the error or ends.
const REFINEMENTS: usize = 2;

/// Values with the weight that the squared error of each has.
#[derive(Clone, Copy)]
pub(super) struct Samples<'a> {
    pub(super) values: &'a [f32],
    pub(super) weights: &'a [f32],
}

impl<'a> Samples<'a> {
    /// Values and weights side by side.
    pub(super) fn pairs(self) -> impl Iterator<Item = (f32, f32)> + 'a {
        self.values.iter().copied().zip(self.weights.iter().copied())
    }

    /// Parts of `size` samples, in order.
    pub(super) fn parts(self, size: usize) -> impl Iterator<Item = Samples<'a>> + 'a {
        let parts = self.values.chunks(size).zip(self.weights.chunks(size));
        parts.map(|(values, weights)| Samples { values, weights })
    }

    /// The value of largest magnitude, with its sign; the first one wins ties.
    pub(super) fn extreme(self) -> f32 {
        extreme(self.values)
    }

    /// Weighted sum of squared differences to `stored(value)`.
    pub(super) fn error(self, stored: impl Fn(f32) -> f32) -> f32 {
        self.pairs().map(|(value, weight)| weight * (value - stored(value)).powi(2)).sum()
    }
}

/// Codes without an offset.
#[derive(Clone, Copy)]
pub(super) struct Symmetric<F> {
    /// The level that the value of largest magnitude gets if the scale spans the block.
    pub(super) end: f32,
    /// Levels between candidates.
    pub(super) step: f32,
    /// Nearest level of a value over the scale.
    pub(super) level: F,
}

impl<F: Fn(f32) -> f32> Symmetric<F> {
    /// The scale `d` for which `d * level(v / d)` is nearest to the values.
    pub(super) fn scale(&self, x: Samples<'_>) -> f32 {
        let extreme = x.extreme();
        if extreme == 0.0 {
            return 0.0;
        }
        let (mut best_gain, mut best_scale) = (0.0, extreme / self.end);
        let mut consider = |scale: f32| {
            let inverse = reciprocal(scale);
            let (mut cross, mut square) = (0.0, 0.0);
            for (value, weight) in x.pairs() {
                let level = (self.level)(value * inverse);
                cross += weight * value * level;
                square += weight * level * level;
            }
            // Least squares gives the scale cross / square and lowers the error by
            // cross^2 / square.
            let gain = cross * cross / square;
            if gain > best_gain {
                (best_gain, best_scale) = (gain, cross / square);
            }
            best_scale
        };
        let mut best = 0.0;
        for candidate in -STEPS..=STEPS {
            best = consider(extreme / (self.end + candidate as f32 * self.step));
        }
        for _ in 0..REFINEMENTS {
            best = consider(best);
        }
        best
    }

    /// Weighted squared error of the best codes for a scale.
    pub(super) fn error(&self, x: Samples<'_>, scale: f32) -> f32 {
        let inverse = reciprocal(scale);
        x.error(|value| scale * (self.level)(value * inverse))
    }
}

/// Codes from 0 to `top` with an offset.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub(super) top: f32,
    /// The offset cannot be above zero.
    pub(super) offset_below_zero: bool,
}

impl Affine {
    /// The scale `d` and offset `m` for which `d * q + m` is nearest to the values.
    pub(super) fn fit(self, x: Samples<'_>) -> (f32, f32) {
        let (mut low, high) = range(x.values);
        if self.offset_below_zero {
            low = low.min(0.0);
        }
        let mut best = ((high - low) / self.top, low);
        if high <= low {
            return (0.0, low);
        }
        let mut best_error = self.error(x, best);
        let mut consider = |inverse: f32, offset: f32| {
            let fitted = self.least_squares(x, inverse, offset);
            let error = self.error(x, fitted);
            if error < best_error {
                (best_error, best) = (error, fitted);
            }
            best
        };
        // Few codes leave more to gain from clipping than many.
        let step = if self.top < 8.0 { 0.1 } else { 0.15 };
        let mut last = (0.0, low);
        for candidate in -STEPS..=STEPS {
            last = consider((self.top + candidate as f32 * step) / (high - low), low);
        }
        for _ in 0..REFINEMENTS {
            last = consider(reciprocal(last.0), last.1);
        }
        last
    }

    /// Scale and offset of least squared error for the codes of another scale and offset.
    fn least_squares(self, x: Samples<'_>, inverse: f32, offset: f32) -> (f32, f32) {
        let (mut total, mut sum, mut sum_codes) = (0.0, 0.0, 0.0);
        let (mut square, mut cross) = (0.0, 0.0);
        for (value, weight) in x.pairs() {
            let code = self.code(value, inverse, offset);
            total += weight;
            sum += weight * value;
            sum_codes += weight * code;
            square += weight * code * code;
            cross += weight * value * code;
        }
        let scale = (total * cross - sum_codes * sum) / (total * square - sum_codes * sum_codes);
        let offset = (sum - scale * sum_codes) / total;
        if self.offset_below_zero && offset > 0.0 { (cross / square, 0.0) } else { (scale, offset) }
    }

    /// Weighted squared error of the best codes for a scale and an offset.
    pub(super) fn error(self, x: Samples<'_>, (scale, offset): (f32, f32)) -> f32 {
        let inverse = reciprocal(scale);
        x.error(|value| scale * self.code(value, inverse, offset) + offset)
    }

    /// The code nearest to `(value - offset) * inverse`.
    #[inline(always)]
    pub(super) fn code(self, value: f32, inverse: f32, offset: f32) -> f32 {
        round_within((value - offset) * inverse, 0.0, self.top)
    }
}

/// The integer nearest to `value` between two integers below 2^22; ties to even. Adding 1.5 * 2^23
/// leaves no bits for a fraction, and costs no call where the processor cannot round.
#[inline(always)]
pub(super) fn round_within(value: f32, low: f32, high: f32) -> f32 {
    const NO_FRACTION: f32 = 12_582_912.0;
    (value.clamp(low, high) + NO_FRACTION) - NO_FRACTION
}

/// The value of largest magnitude, with its sign; the first one wins ties.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |best: f32, &v| if v.abs() > best.abs() { v } else { best })
}

/// Smallest and largest value.
fn range(values: &[f32]) -> (f32, f32) {
    let start = (f32::INFINITY, f32::NEG_INFINITY);
    values.iter().fold(start, |(low, high), &v| (low.min(v), high.max(v)))
}

/// `1 / scale`, or 0 for a block of zeros.
#[inline(always)]
pub(super) fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
