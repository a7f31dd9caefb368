//! Rotary embedding of heads in place.

use super::{Cpu, view};
use crate::error::Result;
use crate::ops::RopePairing;
use crate::tensor::{Heads, Tensor};

pub(super) fn rope(
    positions: &Tensor<Cpu>,
    frequencies: &Tensor<Cpu>,
    pairing: RopePairing,
    x: &Heads<Cpu>,
) -> Result<()> {
    let pairs = frequencies.rows();
    let (positions, frequencies) =
        (view::read("rope", positions)?, view::read("rope", frequencies)?);
    let mut view = view::write("rope", &x.tensor)?;
    for r in 0..x.rows() {
        let position = positions.int(r);
        if position < 0 {
            continue;
        }
        for (i, frequency) in frequencies.flat().0[..pairs].iter().enumerate() {
            // f64 keeps the angle exact to f32 precision at positions of 262144 and beyond.
            let angle = f64::from(position) * f64::from(*frequency);
            let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
            let (a, b) = match pairing {
                RopePairing::Half => (i, i + pairs),
                RopePairing::Adjacent => (2 * i, 2 * i + 1),
            };
            for head in view.row(r).chunks_mut(x.stride).take(x.heads) {
                let (u, v) = (head[a], head[b]);
                head[a] = u * cos - v * sin;
                head[b] = v * cos + u * sin;
            }
        }
    }
    Ok(())
}
