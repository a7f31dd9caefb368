//! Importance of columns as weights of squared errors.

use std::borrow::Cow;

/// Share of the mean importance that every column has at least: inputs that a calibration text
/// never met are not worthless.
const FLOOR: f32 = 1e-2;

/// Weights of mean 1 with a floor; nothing for no importance, or where it is zero throughout.
///
/// # Errors
/// The index of a value that is negative or not finite.
pub(super) fn usable(importance: &[f32]) -> Result<Cow<'_, [f32]>, usize> {
    if let Some(index) = importance.iter().position(|v| !(v.is_finite() && *v >= 0.0)) {
        return Err(index);
    }
    let sum: f64 = importance.iter().map(|&v| f64::from(v)).sum();
    if sum == 0.0 {
        return Ok(Cow::Borrowed(&[]));
    }
    let mean = sum / importance.len() as f64;
    let weight = |v: &f32| ((f64::from(*v) / mean) as f32).max(FLOOR);
    Ok(Cow::Owned(importance.iter().map(weight).collect()))
}
