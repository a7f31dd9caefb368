//! Scales of the quantisers, by search: each candidate scale gives codes, the codes give the scale
//! of least squared error, and the candidate with the smallest error wins.

/// Candidates on each side of the scale that spans the block exactly.
const STEPS: i32 = 6;

/// The scale `d` for which `d * level(v / d)` is nearest to the values. `end` is the level that the
/// value of largest magnitude gets if the scale spans the block; candidates lie `step` levels apart.
pub(super) fn symmetric(
    values: &[f32; 32],
    end: f32,
    step: f32,
    level: impl Fn(f32) -> f32,
) -> f32 {
    let extreme = extreme(values);
    let (mut best_gain, mut best_scale) = (0.0, extreme / end);
    for candidate in -STEPS..=STEPS {
        let inverse = reciprocal(extreme / (end + candidate as f32 * step));
        let (mut cross, mut square) = (0.0, 0.0);
        for &value in values {
            let level = level(value * inverse);
            cross += value * level;
            square += level * level;
        }
        // Least squares gives the scale cross / square and lowers the error by cross^2 / square.
        let gain = cross * cross / square;
        if gain > best_gain {
            (best_gain, best_scale) = (gain, cross / square);
        }
    }
    best_scale
}

/// The scale `d` and offset `m` for which `d * q + m`, with codes `q` from 0 to `top`, is nearest
/// to the values.
pub(super) fn affine(values: &[f32; 32], top: f32) -> (f32, f32) {
    let (low, high) = range(values);
    let mut best = ((high - low) / top, low);
    if high == low {
        return best;
    }
    let mut best_error = affine_error(values, top, best);
    for candidate in -STEPS..=STEPS {
        let inverse = (top + candidate as f32 * 0.15) / (high - low);
        let (mut sum, mut sum_codes, mut square, mut cross) = (0.0, 0.0, 0.0, 0.0);
        for &value in values {
            let code = affine_code(value, inverse, low, top);
            sum += value;
            sum_codes += code;
            square += code * code;
            cross += value * code;
        }
        let count = values.len() as f32;
        let scale = (count * cross - sum_codes * sum) / (count * square - sum_codes * sum_codes);
        let fitted = (scale, (sum - scale * sum_codes) / count);
        let error = affine_error(values, top, fitted);
        if error < best_error {
            (best_error, best) = (error, fitted);
        }
    }
    best
}

/// Sum of squared errors with the best codes for a scale and an offset.
fn affine_error(values: &[f32; 32], top: f32, (scale, offset): (f32, f32)) -> f32 {
    let inverse = reciprocal(scale);
    let mut error = 0.0;
    for &value in values {
        let code = affine_code(value, inverse, offset, top);
        error += (scale * code + offset - value).powi(2);
    }
    error
}

/// The code from 0 to `top` nearest to `(value - offset) * inverse`.
pub(super) fn affine_code(value: f32, inverse: f32, offset: f32, top: f32) -> f32 {
    ((value - offset) * inverse + 0.5).floor().clamp(0.0, top)
}

/// The value of largest magnitude, with its sign; the first one wins ties.
pub(super) fn extreme(values: &[f32; 32]) -> f32 {
    values.iter().fold(0.0, |best: f32, &v| if v.abs() > best.abs() { v } else { best })
}

/// Smallest and largest value.
fn range(values: &[f32; 32]) -> (f32, f32) {
    let start = (values[0], values[0]);
    values.iter().fold(start, |(low, high), &v| (low.min(v), high.max(v)))
}

/// `1 / scale`, or 0 for a block of zeros.
pub(super) fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}
