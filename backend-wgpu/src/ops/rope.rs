//! `rope`: one invocation per pair.

use super::contiguous;
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, read, write};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::Result;
use forge_core::ops::{Rope, RopePairing};

const OP: &str = "rope";

pub(super) fn shader() -> Shader {
    Shader::new(OP, "rrw", 64)
}

pub(super) fn record(pass: &mut WgpuPass<'_>, op: Rope<'_, WgpuBackend>) -> Result<()> {
    let pairs = check::rope(&op)?;
    let Rope { positions, frequencies, pairing, x } = op;
    contiguous(OP, "frequencies", frequencies)?;
    let rows = x.rows();
    let (partner, pair_step) = match pairing {
        RopePairing::Half => (pairs, 1),
        RopePairing::Adjacent => (1, 2),
    };
    let scalars = Scalars::new(
        OP,
        &[
            rows,
            x.heads,
            pairs,
            x.tensor.offset,
            x.tensor.row_stride,
            x.stride,
            positions.offset,
            positions.row_stride,
            frequencies.offset,
            partner,
            pair_step,
        ],
    )?;
    let bindings = vec![
        read(OP, "positions", positions)?,
        read(OP, "frequencies", frequencies)?,
        write(OP, "x", &x.tensor)?,
    ];
    pass.dispatch_elements(&shader(), scalars, bindings, rows * x.heads * pairs)
}
