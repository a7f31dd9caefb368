//! `causal_conv1d`: checks and geometry.

use super::paged_attention::sequence_count;
use super::{matrix, rows_columns};
use crate::pass::{Kernel, Launch};
use crate::{Cuda, Pass};
use forge_core::ops::CausalConv1d;
use forge_core::tensor::{DType, shape_error};
use forge_core::{Error, Result};

const OP: &str = "causal_conv1d";

/// Rows of a block.
const ROWS: u32 = 16;

/// One kernel for each number of taps from 2 to 8.
const KERNELS: [Kernel; 7] = [
    Kernel::new(OP, "causal_conv1d_2"),
    Kernel::new(OP, "causal_conv1d_3"),
    Kernel::new(OP, "causal_conv1d_4"),
    Kernel::new(OP, "causal_conv1d_5"),
    Kernel::new(OP, "causal_conv1d_6"),
    Kernel::new(OP, "causal_conv1d_7"),
    Kernel::new(OP, "causal_conv1d_8"),
];

pub(crate) fn causal_conv1d(pass: &mut Pass<'_>, op: CausalConv1d<'_, Cuda>) -> Result<()> {
    let (rows, channels) = rows_columns(OP, op.out)?;
    matrix(OP, "x", op.x, rows, channels)?;
    let taps = op.weight.row_len();
    op.weight.expect(OP, "weight", DType::F32, &[channels as usize, taps])?;
    let kernel = taps.checked_sub(2).and_then(|index| KERNELS.get(index)).copied();
    let kernel =
        kernel.ok_or_else(|| Error::unsupported(OP, format!("{taps} taps, 2 to 8 are there")))?;
    op.state.expect(OP, "state", DType::F32, &[op.state.rows(), taps - 1, channels as usize])?;
    if !op.weight.is_contiguous() {
        return Err(shape_error(OP, "weight", "no gaps", format!("{:?}", op.weight)));
    }
    let sequences = sequence_count(OP, op.sequences)?;
    let launch = Launch::new(OP, kernel)
        .grid(channels.div_ceil(128), rows.div_ceil(ROWS) + sequences, 1)
        .block(128)
        .overlap();
    pass.launch(
        launch,
        &[
            op.x.into(),
            (op.x.row_stride as u64).into(),
            op.weight.into(),
            (&*op.state).into(),
            (op.state.row_stride as u64).into(),
            op.sequences.into(),
            sequences.into(),
            (&*op.out).into(),
            (op.out.row_stride as u64).into(),
            rows.into(),
            channels.into(),
        ],
    )
}
