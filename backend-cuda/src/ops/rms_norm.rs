//! RMS norm of rows, alone or after a residual addition.

use super::{contiguous, grid_rows, stride};
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Result, check};

const MAX_THREADS: usize = 1024;

/// Kernel and threads of a block: the vector form with the fewest groups of 4 columns per thread
/// that keeps a row in registers, else the form for any shape.
fn choose(columns: usize, aligned: bool) -> (usize, u32) {
    let groups = columns / 4;
    let threads = |count: usize| count.next_multiple_of(32).clamp(32, MAX_THREADS) as u32;
    for (index, per) in [1, 2, 4].into_iter().enumerate() {
        if aligned && groups <= per * MAX_THREADS {
            return (index, threads(groups.div_ceil(per)));
        }
    }
    (3, threads(columns))
}

/// True if rows can be read 16 bytes at a time.
fn aligned(tensor: &Tensor<Cuda>) -> bool {
    tensor.row_len().is_multiple_of(4)
        && tensor.offset.is_multiple_of(4)
        && (tensor.row_stride.is_multiple_of(4) || tensor.rows() <= 1)
}

pub(super) fn rms_norm(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    w: &Tensor<Cuda>,
    eps: f32,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    const OP: &str = "rms_norm";
    const KERNELS: [Kernel; 4] = [
        Kernel::new("rms_norm", "rms_norm_1"),
        Kernel::new("rms_norm", "rms_norm_2"),
        Kernel::new("rms_norm", "rms_norm_4"),
        Kernel::new("rms_norm", "rms_norm_any"),
    ];
    let (rows, columns) = check::rms_norm(x, w, out)?;
    contiguous(OP, "w", w)?;
    let vector = aligned(x) && aligned(out) && w.offset.is_multiple_of(4);
    let (kernel, threads) = choose(columns, vector);
    let launch =
        Launch::new(OP, KERNELS[kernel]).grid(grid_rows(OP, rows)?, 1, 1).block(threads).overlap();
    let columns = index32(OP, "columns", columns)?;
    pass.launch(
        launch,
        &[x.into(), stride(x), w.into(), eps.into(), (&*out).into(), stride(out), columns.into()],
    )
}

pub(super) fn add_rms_norm(
    pass: &mut Pass<'_>,
    x: &Tensor<Cuda>,
    sum: &mut Tensor<Cuda>,
    w: &Tensor<Cuda>,
    eps: f32,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    const OP: &str = "add_rms_norm";
    const KERNELS: [Kernel; 4] = [
        Kernel::new("rms_norm", "add_rms_norm_1"),
        Kernel::new("rms_norm", "add_rms_norm_2"),
        Kernel::new("rms_norm", "add_rms_norm_4"),
        Kernel::new("rms_norm", "add_rms_norm_any"),
    ];
    check::same(OP, x, sum)?;
    let (rows, columns) = check::rms_norm(sum, w, out)?;
    contiguous(OP, "w", w)?;
    let vector = aligned(x) && aligned(sum) && aligned(out) && w.offset.is_multiple_of(4);
    let (kernel, threads) = choose(columns, vector);
    let launch =
        Launch::new(OP, KERNELS[kernel]).grid(grid_rows(OP, rows)?, 1, 1).block(threads).overlap();
    let args: [Arg<'_>; 9] = [
        x.into(),
        stride(x),
        (&*sum).into(),
        stride(sum),
        w.into(),
        eps.into(),
        (&*out).into(),
        stride(out),
        index32(OP, "columns", columns)?.into(),
    ];
    pass.launch(launch, &args)
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn a_row_fits_the_threads_chosen() {
        for columns in [4, 128, 1024, 2560, 4096, 5120, 8192, 16384] {
            let (kernel, threads) = choose(columns, true);
            assert!(columns <= 4 * (1 << kernel) * threads as usize, "{columns}");
            assert!(threads % 32 == 0 && threads <= 1024);
        }
        assert_eq!(choose(5120, true), (1, 640));
        assert_eq!(choose(20_000, true).0, 3);
        assert_eq!(choose(10, false), (3, 32));
    }
}
