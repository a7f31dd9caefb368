//! `causal_conv1d`: checks and geometry.

use super::paged_attention::sequence_count;
use super::{contiguous, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::ops::CausalConv1d;
use forge_core::tensor::DType;
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
    let (rows, channels, taps) = (op.out.rows(), op.out.row_len(), op.weight.row_len());
    op.out.expect(OP, "out", DType::F32, &[rows, channels])?;
    op.x.expect(OP, "x", DType::F32, &[rows, channels])?;
    op.weight.expect(OP, "weight", DType::F32, &[channels, taps])?;
    contiguous(OP, "weight", op.weight)?;
    let kernel = taps.checked_sub(2).and_then(|index| KERNELS.get(index)).copied();
    let kernel =
        kernel.ok_or_else(|| Error::unsupported(OP, format!("{taps} taps, 2 to 8 are there")))?;
    op.state.expect(OP, "state", DType::F32, &[op.state.rows(), taps - 1, channels])?;
    let sequences = sequence_count(OP, op.sequences)?;
    let rows = index32(OP, "rows", rows)?;
    let channels = index32(OP, "channels", channels)?;
    let launch = Launch::new(OP, kernel)
        .grid(channels.div_ceil(128), rows.div_ceil(ROWS) + sequences, 1)
        .block(128)
        .overlap();
    pass.launch(
        launch,
        &[
            op.x.into(),
            stride(op.x),
            op.weight.into(),
            (&*op.state).into(),
            stride(op.state),
            op.sequences.into(),
            sequences.into(),
            (&*op.out).into(),
            stride(op.out),
            rows.into(),
            channels.into(),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::fake;
    use crate::tests::{f32s, i32s, launches, open};

    #[test]
    fn a_launch_covers_all_rows_and_channels() {
        let Some(cuda) = open() else { return };
        for (rows, channels, taps, sequences) in
            [(1, 8192, 4, 1), (50, 130, 2, 3), (1024, 96, 8, 5)]
        {
            let (x, weight) = (f32s(&cuda, &[rows, channels]), f32s(&cuda, &[channels, taps]));
            let mut state = f32s(&cuda, &[4, taps - 1, channels]);
            let (lines, mut out) = (i32s(&cuda, &[sequences, 4]), f32s(&cuda, &[rows, channels]));
            fake::take_grids();
            let count = launches(&cuda, |pass| {
                causal_conv1d(
                    pass,
                    CausalConv1d {
                        x: &x,
                        weight: &weight,
                        state: &mut state,
                        sequences: &lines,
                        out: &mut out,
                    },
                )
            });
            assert_eq!(count, 1);
            let [columns, pieces, _] = fake::take_grids()[0];
            assert!(columns as usize * 128 >= channels);
            assert_eq!(pieces as usize, rows.div_ceil(16) + sequences);
        }
    }
}
