//! Keys and values into the paged pool.

use super::{stride, warps};
use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::kv::KvType;
use forge_core::ops::StoreKv;
use forge_core::{Result, check};

const OP: &str = "store_kv";

const fn kernel(kv_type: KvType) -> Kernel {
    let entry = match kv_type {
        KvType::F32 => "store_kv_f32",
        KvType::F16 => "store_kv_f16",
        KvType::Bf16 => "store_kv_bf16",
        KvType::Q8_0 => "store_kv_q8_0",
        KvType::Fp8 => "store_kv_fp8",
    };
    Kernel::new("store_kv", entry)
}

pub(super) fn store_kv(pass: &mut Pass<'_>, op: StoreKv<'_, Cuda>) -> Result<()> {
    let rows = check::store_kv(&op)?;
    let layout = op.pool.layout;
    layout.check()?;
    let tasks = index32(OP, "heads", 2 * layout.kv_heads * rows)?;
    pass.launch(
        warps(Launch::new(OP, kernel(layout.kv_type)), tasks),
        &[
            op.k.into(),
            stride(op.k),
            op.v.into(),
            stride(op.v),
            op.kv_rows.into(),
            stride(op.kv_rows),
            (&op.pool.pages).into(),
            stride(&op.pool.pages),
            index32(OP, "kv_heads", layout.kv_heads)?.into(),
            index32(OP, "head_dim", layout.head_dim)?.into(),
            index32(OP, "blocks", op.pool.pages.rows())?.into(),
            tasks.into(),
        ],
    )
}
