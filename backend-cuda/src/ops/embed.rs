//! Rows of an embedding table, dequantised.

use super::grid_rows;
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::backend::Weight;
use forge_core::tensor::Tensor;
use forge_core::weights::quant::StorageType;
use forge_core::{Error, Result, check};

const OP: &str = "embed";
/// Values that one block decodes.
const SEGMENT: usize = 1024;

const fn kernel(storage: StorageType) -> Kernel {
    let entry = match storage {
        StorageType::F32 => "embed_f32",
        StorageType::F16 => "embed_f16",
        StorageType::Bf16 => "embed_bf16",
        StorageType::Q4_0 => "embed_q4_0",
        StorageType::Q4_1 => "embed_q4_1",
        StorageType::Q5_0 => "embed_q5_0",
        StorageType::Q5_1 => "embed_q5_1",
        StorageType::Q8_0 => "embed_q8_0",
        StorageType::Q2_K => "embed_q2_k",
        StorageType::Q3_K => "embed_q3_k",
        StorageType::Q4_K => "embed_q4_k",
        StorageType::Q5_K => "embed_q5_k",
        StorageType::Q6_K => "embed_q6_k",
        StorageType::Iq2Xxs => "embed_iq2_xxs",
        StorageType::Iq2Xs => "embed_iq2_xs",
        StorageType::Iq3Xxs => "embed_iq3_xxs",
        StorageType::Iq4Nl => "embed_iq4_nl",
        StorageType::Iq4Xs => "embed_iq4_xs",
        StorageType::Mxfp4 => "embed_mxfp4",
    };
    Kernel::new("embed", entry)
}

pub(super) fn embed(
    pass: &mut Pass<'_>,
    ids: &Tensor<Cuda>,
    table: &Weight<Cuda>,
    out: &mut Tensor<Cuda>,
) -> Result<()> {
    let (rows, columns) = check::embed(ids, table, out)?;
    let rows = grid_rows(OP, rows)?;
    let parts = table.storage.lookup().ok_or_else(|| {
        Error::unsupported(OP, "the table was uploaded for products; upload it as a lookup")
    })?;
    let mut first = 0;
    for part in parts {
        let blocks = index32(OP, "columns", columns.div_ceil(SEGMENT))?;
        let launch =
            Launch::new(OP, kernel(part.storage)).grid(blocks, rows, 1).block(256).overlap();
        pass.launch(
            launch,
            &[
                ids.into(),
                (ids.row_stride as u64).into(),
                (&part.buffer).into(),
                (part.row_bytes as u64).into(),
                index32(OP, "first row", first)?.into(),
                index32(OP, "table rows", part.rows)?.into(),
                index32(OP, "table rows", table.rows)?.into(),
                (&*out).into(),
                (out.row_stride as u64).into(),
                index32(OP, "columns", columns)?.into(),
            ],
        )?;
        first += part.rows;
    }
    Ok(())
}
