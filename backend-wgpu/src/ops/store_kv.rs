//! `store_kv`: one dispatch per part of the pool.

use crate::WgpuBackend;
use crate::memory::RowPart;
use crate::pass::{Scalars, WgpuPass, raw, read};
use crate::pipeline::Shader;
use forge_core::check;
use forge_core::error::{Error, Result};
use forge_core::kv::{KvLayout, KvPool, KvType};
use forge_core::ops::StoreKv;
use forge_core::tensor::{DType, shape_error};

const OP: &str = "store_kv";

/// Constants that the codecs of a layout need.
pub(super) fn codec_constants(shader: Shader, layout: &KvLayout) -> Shader {
    let shader = shader.constant("DIM", layout.head_dim as u32);
    if layout.kv_type != KvType::Q8_0 {
        return shader;
    }
    shader
        .constant("GROUP", layout.group() as u32)
        .constant("BLOCK_VALUES", layout.block_values() as u32)
}

pub(super) fn shader(layout: &KvLayout) -> Shader {
    let codec = match layout.kv_type {
        KvType::F32 => "kv/store_f32",
        KvType::F16 => "kv/store_f16",
        KvType::Bf16 => "kv/store_bf16",
        KvType::Q8_0 => "kv/store_q8_0",
        KvType::Fp8 => "kv/store_fp8",
    };
    codec_constants(Shader::new(OP, "rrrw", 64), layout).snippets(&[codec])
}

/// Values that one invocation stores.
fn run(layout: &KvLayout) -> usize {
    if layout.kv_type == KvType::Q8_0 { layout.group() } else { 4 }
}

/// The parts of a pool, with offsets in words.
pub(super) fn pool_parts(op: &'static str, pool: &KvPool<WgpuBackend>) -> Result<Vec<RowPart>> {
    let (pages, layout) = (&pool.pages, &pool.layout);
    pages.expect(op, "pool", DType::U8, &[pages.rows(), layout.block_bytes()])?;
    layout.check()?;
    if !layout.head_dim.is_multiple_of(4) || !layout.block_bytes().is_multiple_of(4) {
        return Err(Error::unsupported(
            format!("{op} with heads of {}", layout.head_dim),
            "a multiple of 4",
        ));
    }
    if !pages.is_contiguous() || !pages.offset.is_multiple_of(4) {
        return Err(shape_error(op, "pool", "contiguous words", format!("{pages:?}")));
    }
    let parts = pages.buffer.row_parts(pages).into_iter();
    Ok(parts.map(|part| RowPart { offset: part.offset / 4, ..part }).collect())
}

pub(super) fn record(pass: &mut WgpuPass<'_>, op: StoreKv<'_, WgpuBackend>) -> Result<()> {
    let rows = check::store_kv(&op)?;
    let StoreKv { k, v, kv_rows, pool } = op;
    let layout = &pool.layout;
    let columns = layout.kv_heads * layout.head_dim;
    for part in pool_parts(OP, pool)? {
        let scalars = Scalars::new(
            OP,
            &[
                rows,
                layout.kv_heads,
                part.first_row,
                part.rows,
                layout.block_bytes() / 4,
                part.offset,
                k.offset,
                k.row_stride,
                v.offset,
                v.row_stride,
                kv_rows.offset,
                kv_rows.row_stride,
            ],
        )?;
        let bindings = vec![
            read(OP, "k", k)?,
            read(OP, "v", v)?,
            read(OP, "kv_rows", kv_rows)?,
            raw(&part.buffer, true),
        ];
        let count = rows * 2 * columns / run(layout);
        pass.dispatch_elements(&shader(layout), scalars, bindings, count)?;
    }
    Ok(())
}
