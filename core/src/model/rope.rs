//! Rotary frequencies of a model.

use crate::config::{RopeConfig, RopeScaling};
use std::f64::consts::PI;

/// Radians per position of each pair: `theta^(-2i/n)`, scaled, divided by the checkpoint's own
/// divisors if it has any. Llama 3 scaling as published with Llama 3.1: wavelengths above
/// `original / low` are divided by `factor`, those below `original / high` kept, the middle blended.
pub fn frequencies(rope: &RopeConfig, divisors: Option<&[f32]>) -> Vec<f32> {
    (0..rope.dims / 2)
        .map(|i| {
            let frequency = rope.theta.powf(-2.0 * i as f64 / rope.dims as f64);
            let scaled = frequency / divisor(rope.scaling, frequency);
            let own = divisors.and_then(|d| d.get(i)).map_or(1.0, |d| f64::from(*d));
            (scaled / own) as f32
        })
        .collect()
}

fn divisor(scaling: RopeScaling, frequency: f64) -> f64 {
    match scaling {
        RopeScaling::None => 1.0,
        RopeScaling::Linear { factor } => factor,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_positions,
        } => {
            let original = original_max_positions as f64;
            let wavelength = 2.0 * PI / frequency;
            if wavelength < original / high_freq_factor {
                1.0
            } else if wavelength > original / low_freq_factor {
                factor
            } else {
                let t = (original / wavelength - low_freq_factor)
                    / (high_freq_factor - low_freq_factor);
                1.0 / ((1.0 - t) / factor + t)
            }
        }
    }
}
