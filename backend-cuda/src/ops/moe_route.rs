//! The best experts of each row and their weights.

use super::{grid_rows, stride};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::tensor::Tensor;
use forge_core::{Error, Result, check};

const OP: &str = "moe_route";
/// Kernels by the experts that they hold.
const KERNELS: [(usize, Kernel); 4] = [
    (128, Kernel::new("moe_route", "moe_route_4")),
    (256, Kernel::new("moe_route", "moe_route_8")),
    (512, Kernel::new("moe_route", "moe_route_16")),
    (1024, Kernel::new("moe_route", "moe_route_32")),
];

pub(super) fn moe_route(
    pass: &mut Pass<'_>,
    logits: &Tensor<Cuda>,
    ids: &mut Tensor<Cuda>,
    weights: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, experts, k) = check::moe_route(logits, ids, weights)?;
    let (_, kernel) = *KERNELS
        .iter()
        .find(|(most, _)| experts <= *most)
        .ok_or_else(|| Error::unsupported(OP, format!("{experts} experts, at most 1024")))?;
    let launch = Launch::new(OP, kernel).grid(grid_rows(OP, rows)?, 1, 1).block(32).overlap();
    pass.launch(
        launch,
        &[
            logits.into(),
            stride(logits),
            index32(OP, "experts", experts)?.into(),
            (&*ids).into(),
            stride(ids),
            (&*weights).into(),
            stride(weights),
            index32(OP, "k", k)?.into(),
        ],
    )
}
