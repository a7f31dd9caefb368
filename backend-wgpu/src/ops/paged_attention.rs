//! `paged_attention`: splits of the context, one dispatch per part of the pool, then one merge.

use super::contiguous;
use super::store_kv::{codec_constants, pool_parts};
use crate::WgpuBackend;
use crate::pass::{Scalars, WgpuPass, raw, read, write};
use crate::pipeline::Shader;
use crate::self_test;
use forge_core::check::{self, AttentionDims};
use forge_core::error::{Error, Result};
use forge_core::kv::{KvLayout, KvType};
use forge_core::ops::PagedAttention;

const OP: &str = "paged_attention";
/// Query lanes of a workgroup: 16 tokens of a block for each of them make 128 invocations.
const MAX_LANES: usize = 8;
/// Workgroup memory for queries; the scores of a block take little more.
const QUERY_BYTES: usize = 12 << 10;
/// Workgroups that fill a device; splits are added up to it.
const WANTED_GROUPS: usize = 512;
/// Fewest blocks of a split that pay for its share of the merge.
const MIN_SPLIT_BLOCKS: usize = 8;
const MAX_SPLITS: usize = 64;

/// Rows and query heads of a workgroup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub(super) rows: usize,
    pub(super) heads: usize,
}

impl Lanes {
    /// As many heads of one KV head as fit, then as many rows.
    fn choose(heads_per_kv: usize, head_dim: usize, rows: usize) -> Result<Self> {
        let lanes = (QUERY_BYTES / (4 * head_dim)).min(MAX_LANES);
        if lanes == 0 {
            return Err(Error::unsupported(
                format!("{OP} with heads of {head_dim}"),
                format!("at most {}", QUERY_BYTES / 4),
            ));
        }
        let heads = heads_per_kv.min(lanes);
        Ok(Self { rows: (lanes / heads).min(rows).max(1), heads })
    }
}

fn with_codec(shader: Shader, layout: &KvLayout, lanes: Lanes) -> Shader {
    let codec = match layout.kv_type {
        KvType::F32 => "kv/load_f32",
        KvType::F16 => "kv/load_f16",
        KvType::Bf16 => "kv/load_bf16",
        KvType::Q8_0 => "kv/load_q8_0",
        KvType::Fp8 => "kv/load_fp8",
    };
    codec_constants(shader, layout)
        .constant("TILE_ROWS", lanes.rows as u32)
        .constant("HEADS", lanes.heads as u32)
        .snippets(&[codec])
}

/// The pass over the context.
pub(super) fn shader(layout: &KvLayout, lanes: Lanes) -> Shader {
    with_codec(Shader::new(OP, "rrrrw", 128), layout, lanes)
}

/// The merge of the splits.
pub(super) fn merge_shader(layout: &KvLayout) -> Shader {
    let shader = Shader::new(OP, "--r-ww", 64).entry("paged_attention_merge");
    with_codec(shader, layout, Lanes { rows: 1, heads: 1 })
}

pub(super) fn record(pass: &mut WgpuPass<'_>, op: PagedAttention<'_, WgpuBackend>) -> Result<()> {
    let AttentionDims { rows, sequences: count, group: heads_per_kv, max_blocks } =
        check::paged_attention(&op)?;
    let PagedAttention { q, pool, sequences, block_table, scale, out } = op;
    let layout = &pool.layout;
    contiguous(OP, "sequences", sequences)?;
    let parts = pool_parts(OP, pool)?;
    self_test::kv(pass.backend, *layout, heads_per_kv)?;
    let lanes = Lanes::choose(heads_per_kv, q.dim, rows)?;
    let head_chunks = heads_per_kv.div_ceil(lanes.heads);
    let (tiles, across) = (rows.div_ceil(lanes.rows), layout.kv_heads * head_chunks);
    let splits = (WANTED_GROUPS / (tiles * across * count).max(1))
        .clamp(1, max_blocks.div_ceil(MIN_SPLIT_BLOCKS).clamp(1, MAX_SPLITS));
    let all_parts = splits * parts.len();
    let scratch_len = rows * q.heads * all_parts * (q.dim / 4 + 1);
    let scratch = pass.backend.scratch(OP, scratch_len.max(1) * 16)?;
    let scalars = |part_first: usize, first_row: usize, part_rows: usize, offset: usize| {
        let values = [
            rows,
            count,
            q.heads,
            layout.kv_heads,
            heads_per_kv,
            head_chunks,
            splits,
            part_first,
            all_parts,
            first_row,
            part_rows,
            layout.block_bytes() / 4,
            offset,
            q.tensor.offset,
            q.tensor.row_stride,
            q.stride,
            sequences.offset,
            block_table.offset,
            block_table.row_stride,
            out.offset,
            out.row_stride,
        ];
        Scalars::new(OP, &values).map(|scalars| scalars.float(scale))
    };
    for (i, part) in parts.iter().enumerate() {
        let bindings = vec![
            read(OP, "q", &q.tensor)?,
            raw(&part.buffer, false),
            read(OP, "sequences", sequences)?,
            read(OP, "block_table", block_table)?,
            raw(&scratch, true),
        ];
        let groups = [tiles as u32, across as u32, (count * splits) as u32];
        let scalars = scalars(i * splits, part.first_row, part.rows, part.offset)?;
        pass.dispatch(&shader(layout, lanes), scalars, bindings, groups)?;
    }
    let bindings =
        vec![read(OP, "sequences", sequences)?, raw(&scratch, true), write(OP, "out", out)?];
    pass.dispatch_flat(&merge_shader(layout), scalars(0, 0, 0, 0)?, bindings, rows * q.heads)
}
