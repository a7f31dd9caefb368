//! Shape checks of the ops, shared by the backends: each function fails with a shape error that
//! names op and tensor, and returns the sizes that launchers need.

use crate::backend::{Backend, Weight};
use crate::error::Result;
use crate::ops::{
    CausalConv1d, CopyPages, GatedDeltaRule, MoeCombine, PagedAttention, PrepareAttention, Rope,
    SEQUENCE_FIELDS, StoreKv,
};
use crate::tensor::{DType, Heads, Tensor, shape_error};

/// `ids` `[R]`, `table` `[V, H]`, `out` `[R, H]`; returns `(R, H)`.
///
/// # Errors
/// Shape error.
pub fn embed<B: Backend>(
    ids: &Tensor<B>,
    table: &Weight<B>,
    out: &Tensor<B>,
) -> Result<(usize, usize)> {
    let rows = ids.rows();
    ids.expect("embed", "ids", DType::I32, &[rows, 1])?;
    out.expect("embed", "out", DType::F32, &[rows, table.columns])?;
    if table.experts != 1 {
        return Err(shape_error("embed", "table", "one matrix", table.experts));
    }
    Ok((rows, table.columns))
}

/// `x` `[R, H]`, `indices` `[N]`, `out` `[N, H]`; returns `(N, H)`.
///
/// # Errors
/// Shape error.
pub fn gather_rows<B: Backend>(
    x: &Tensor<B>,
    indices: &Tensor<B>,
    out: &Tensor<B>,
) -> Result<(usize, usize)> {
    let (rows, columns) = (indices.rows(), x.row_len());
    indices.expect("gather_rows", "indices", DType::I32, &[rows, 1])?;
    x.expect("gather_rows", "x", DType::F32, &[x.rows(), columns])?;
    out.expect("gather_rows", "out", DType::F32, &[rows, columns])?;
    Ok((rows, columns))
}

/// `x` `[R, in]`, `w` one matrix `[out, in]`, `out` `[R, out]`; returns `R`.
///
/// # Errors
/// Shape error.
pub fn linear<B: Backend>(x: &Tensor<B>, w: &Weight<B>, out: &Tensor<B>) -> Result<usize> {
    if w.experts != 1 {
        return Err(shape_error("linear", "w", "one matrix", format!("{} experts", w.experts)));
    }
    x.expect("linear", "x", DType::F32, &[x.rows(), w.columns])?;
    out.expect("linear", "out", DType::F32, &[x.rows(), w.rows])?;
    Ok(x.rows())
}

/// `x` `[R or R * k, in]`, `ids` `[R, k]`, `out` `[R * k, out]`; returns `(R, k, x is shared)`.
///
/// # Errors
/// Shape error.
pub fn moe_linear<B: Backend>(
    x: &Tensor<B>,
    w: &Weight<B>,
    ids: &Tensor<B>,
    out: &Tensor<B>,
) -> Result<(usize, usize, bool)> {
    let (rows, k) = (ids.rows(), ids.row_len());
    ids.expect("moe_linear", "ids", DType::I32, &[rows, k])?;
    let shared = x.rows() == rows;
    let x_rows = if shared { rows } else { rows * k };
    x.expect("moe_linear", "x", DType::F32, &[x_rows, w.columns])?;
    out.expect("moe_linear", "out", DType::F32, &[rows * k, w.rows])?;
    Ok((rows, k, shared))
}

/// Two `[R, H]` tensors of the same shape; returns `(R, H)`.
///
/// # Errors
/// Shape error.
pub fn same<B: Backend>(op: &'static str, x: &Tensor<B>, y: &Tensor<B>) -> Result<(usize, usize)> {
    let (rows, columns) = (x.rows(), x.row_len());
    x.expect(op, "x", DType::F32, &[rows, columns])?;
    y.expect(op, "out", DType::F32, &[rows, columns])?;
    Ok((rows, columns))
}

/// `x`, `out` `[R, H]`, `w` `[H]`; returns `(R, H)`.
///
/// # Errors
/// Shape error.
pub fn rms_norm<B: Backend>(
    x: &Tensor<B>,
    w: &Tensor<B>,
    out: &Tensor<B>,
) -> Result<(usize, usize)> {
    let (rows, columns) = same("rms_norm", x, out)?;
    w.expect("rms_norm", "w", DType::F32, &[columns, 1])?;
    Ok((rows, columns))
}

/// `w` has the size of a head.
///
/// # Errors
/// Shape error.
pub fn rms_norm_heads<B: Backend>(x: &Heads<B>, w: &Tensor<B>) -> Result<()> {
    w.expect("rms_norm_heads", "w", DType::F32, &[x.dim, 1])
}

/// `x`, `gate`, `out` `[R, n * len(w)]`; returns `(R, n, dim)`.
///
/// # Errors
/// Shape error.
pub fn gated_rms_norm<B: Backend>(
    x: &Tensor<B>,
    gate: &Tensor<B>,
    w: &Tensor<B>,
    out: &Tensor<B>,
) -> Result<(usize, usize, usize)> {
    let (rows, columns) = same("gated_rms_norm", x, out)?;
    same("gated_rms_norm", x, gate)?;
    let dim = w.rows();
    w.expect("gated_rms_norm", "w", DType::F32, &[dim, 1])?;
    if dim == 0 || !columns.is_multiple_of(dim) {
        return Err(shape_error("gated_rms_norm", "x", format!("a multiple of {dim}"), columns));
    }
    Ok((rows, columns / dim, dim))
}

/// Positions per row and frequencies for at most the whole head; returns rotated pairs.
///
/// # Errors
/// Shape error.
pub fn rope<B: Backend>(op: &Rope<'_, B>) -> Result<usize> {
    let pairs = op.frequencies.rows();
    op.frequencies.expect("rope", "frequencies", DType::F32, &[pairs, 1])?;
    op.positions.expect("rope", "positions", DType::I32, &[op.x.rows(), 1])?;
    if 2 * pairs > op.x.dim {
        return Err(shape_error("rope", "frequencies", format!("<= {}", op.x.dim / 2), pairs));
    }
    Ok(pairs)
}

/// `k`, `v` `[R, kv_heads * head_dim]`, `kv_rows` `[R]`; returns `R`.
///
/// # Errors
/// Shape error.
pub fn store_kv<B: Backend>(op: &StoreKv<'_, B>) -> Result<usize> {
    let (rows, layout) = (op.k.rows(), op.pool.layout);
    let columns = layout.kv_heads * layout.head_dim;
    op.k.expect("store_kv", "k", DType::F32, &[rows, columns])?;
    op.v.expect("store_kv", "v", DType::F32, &[rows, columns])?;
    op.kv_rows.expect("store_kv", "kv_rows", DType::I32, &[rows, 1])?;
    op.pool.pages.expect(
        "store_kv",
        "pages",
        DType::U8,
        &[op.pool.pages.rows(), layout.block_bytes()],
    )?;
    Ok(rows)
}

fn sequences<B: Backend>(op: &'static str, table: &Tensor<B>) -> Result<usize> {
    table.expect(op, "sequences", DType::I32, &[table.rows(), SEQUENCE_FIELDS])?;
    Ok(table.rows())
}

/// Sizes of a [`PagedAttention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionDims {
    /// Rows of the pass.
    pub rows: usize,
    /// Sequences of the pass.
    pub sequences: usize,
    /// Query heads that share a KV head.
    pub group: usize,
    /// Width of the block table.
    pub max_blocks: usize,
}

/// Checks the arguments.
///
/// # Errors
/// Shape error.
pub fn paged_attention<B: Backend>(op: &PagedAttention<'_, B>) -> Result<AttentionDims> {
    const OP: &str = "paged_attention";
    let layout = op.pool.layout;
    let count = sequences(OP, op.sequences)?;
    let max_blocks = op.block_table.row_len();
    op.block_table.expect(OP, "block_table", DType::I32, &[count, max_blocks])?;
    op.out.expect(OP, "out", DType::F32, &[op.q.rows(), op.q.heads * op.q.dim])?;
    if op.q.dim != layout.head_dim || !op.q.heads.is_multiple_of(layout.kv_heads) {
        return Err(shape_error(
            OP,
            "q",
            format!("a multiple of {} heads of {}", layout.kv_heads, layout.head_dim),
            format!("{} of {}", op.q.heads, op.q.dim),
        ));
    }
    Ok(AttentionDims {
        rows: op.q.rows(),
        sequences: count,
        group: op.q.heads / layout.kv_heads,
        max_blocks,
    })
}

/// `gate` heads cover the columns of `x`.
///
/// # Errors
/// Shape error.
pub fn sigmoid_mul<B: Backend>(gate: &Heads<B>, x: &Tensor<B>) -> Result<()> {
    x.expect("sigmoid_mul", "x", DType::F32, &[gate.rows(), gate.heads * gate.dim])
}

/// Sizes of a [`CausalConv1d`].
#[derive(Clone, Copy, Debug)]
pub struct ConvDims {
    /// Rows of the pass.
    pub rows: usize,
    /// Sequences of the pass.
    pub sequences: usize,
    /// Channels.
    pub channels: usize,
    /// Taps.
    pub kernel: usize,
    /// State slots.
    pub slots: usize,
}

/// Checks the arguments.
///
/// # Errors
/// Shape error.
pub fn causal_conv1d<B: Backend>(op: &CausalConv1d<'_, B>) -> Result<ConvDims> {
    const OP: &str = "causal_conv1d";
    let (rows, channels) = same(OP, op.x, op.out)?;
    let kernel = op.weight.row_len();
    op.weight.expect(OP, "weight", DType::F32, &[channels, kernel])?;
    let slots = op.state.rows();
    op.state.expect(OP, "state", DType::F32, &[slots, kernel.saturating_sub(1) * channels])?;
    Ok(ConvDims { rows, sequences: sequences(OP, op.sequences)?, channels, kernel, slots })
}

/// Sizes of a [`GatedDeltaRule`].
#[derive(Clone, Copy, Debug)]
pub struct DeltaDims {
    /// Rows of the pass.
    pub rows: usize,
    /// Sequences of the pass.
    pub sequences: usize,
    /// Key heads.
    pub key_heads: usize,
    /// Value heads.
    pub value_heads: usize,
    /// Values of a key head.
    pub key_dim: usize,
    /// Values of a value head.
    pub value_dim: usize,
    /// State slots.
    pub slots: usize,
}

/// Checks the arguments.
///
/// # Errors
/// Shape error.
pub fn gated_delta_rule<B: Backend>(op: &GatedDeltaRule<'_, B>) -> Result<DeltaDims> {
    const OP: &str = "gated_delta_rule";
    let &[slots, value_heads, key_dim, value_dim] = op.state.shape.dims() else {
        return Err(shape_error(OP, "state", "four dimensions", format!("{:?}", op.state)));
    };
    op.state.expect(OP, "state", DType::F32, &[slots, value_heads, key_dim, value_dim])?;
    let rows = op.qkv.rows();
    let channels = 2 * op.key_heads * key_dim + value_heads * value_dim;
    op.qkv.expect(OP, "qkv", DType::F32, &[rows, channels])?;
    op.ba.expect(OP, "ba", DType::F32, &[rows, 2 * value_heads])?;
    op.head_constants.expect(OP, "head_constants", DType::F32, &[2, value_heads])?;
    op.out.expect(OP, "out", DType::F32, &[rows, value_heads * value_dim])?;
    if op.key_heads == 0 || value_heads == 0 || !value_heads.is_multiple_of(op.key_heads) {
        return Err(shape_error(
            OP,
            "key_heads",
            format!("a divisor of {value_heads}"),
            op.key_heads,
        ));
    }
    Ok(DeltaDims {
        rows,
        sequences: sequences(OP, op.sequences)?,
        key_heads: op.key_heads,
        value_heads,
        key_dim,
        value_dim,
        slots,
    })
}

/// `gate_up` `[R, 2I]`, `out` `[R, I]`; returns `(R, I)`.
///
/// # Errors
/// Shape error.
pub fn silu_mul<B: Backend>(gate_up: &Tensor<B>, out: &Tensor<B>) -> Result<(usize, usize)> {
    let (rows, inner) = (out.rows(), out.row_len());
    gate_up.expect("silu_mul", "gate_up", DType::F32, &[rows, 2 * inner])?;
    out.expect("silu_mul", "out", DType::F32, &[rows, inner])?;
    Ok((rows, inner))
}

/// `logits` `[R, E]`, `ids`, `weights` `[R, k]`; returns `(R, E, k)`.
///
/// # Errors
/// Shape error.
pub fn moe_route<B: Backend>(
    logits: &Tensor<B>,
    ids: &Tensor<B>,
    weights: &Tensor<B>,
) -> Result<(usize, usize, usize)> {
    let (rows, experts, k) = (logits.rows(), logits.row_len(), ids.row_len());
    logits.expect("moe_route", "logits", DType::F32, &[rows, experts])?;
    ids.expect("moe_route", "ids", DType::I32, &[rows, k])?;
    weights.expect("moe_route", "weights", DType::F32, &[rows, k])?;
    if k > experts {
        return Err(shape_error("moe_route", "ids", format!("k <= {experts}"), k));
    }
    Ok((rows, experts, k))
}

/// Returns `(R, k, H)`.
///
/// # Errors
/// Shape error.
pub fn moe_combine<B: Backend>(op: &MoeCombine<'_, B>) -> Result<(usize, usize, usize)> {
    const OP: &str = "moe_combine";
    let (rows, hidden) = same(OP, op.shared, op.out)?;
    let k = op.weights.row_len();
    op.weights.expect(OP, "weights", DType::F32, &[rows, k])?;
    op.experts.expect(OP, "experts", DType::F32, &[rows * k, hidden])?;
    op.shared_gate.expect(OP, "shared_gate", DType::F32, &[rows, 1])?;
    Ok((rows, k, hidden))
}

/// `logits` `[N, V]`, `out` `[N]`; returns `(N, V)`.
///
/// # Errors
/// Shape error.
pub fn argmax<B: Backend>(logits: &Tensor<B>, out: &Tensor<B>) -> Result<(usize, usize)> {
    let (rows, columns) = (logits.rows(), logits.row_len());
    logits.expect("argmax", "logits", DType::F32, &[rows, columns])?;
    out.expect("argmax", "out", DType::I32, &[rows, 1])?;
    Ok((rows, columns))
}

/// `pairs` `[N, 2]`, `state` contiguous; returns `N`.
///
/// # Errors
/// Shape error.
pub fn copy_state<B: Backend>(pairs: &Tensor<B>, state: &Tensor<B>) -> Result<usize> {
    pairs.expect("copy_state", "pairs", DType::I32, &[pairs.rows(), 2])?;
    if !state.is_contiguous() {
        return Err(shape_error("copy_state", "state", "contiguous", format!("{state:?}")));
    }
    Ok(pairs.rows())
}

/// Sizes of [`CopyPages`], in words of 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSizes {
    /// Words of a row of the state.
    pub row: usize,
    /// Words of a block.
    pub block: usize,
    /// Blocks of the stream.
    pub blocks: usize,
}

/// `table` `[1 + n]`; the range lies in a row of `state` and in the stream of `n` blocks.
///
/// # Errors
/// Shape error.
pub fn copy_pages<B: Backend>(op: &CopyPages<'_, B>) -> Result<PageSizes> {
    const OP: &str = "copy_pages";
    op.table.expect(OP, "table", DType::I32, &[op.table.rows(), 1])?;
    let row_bytes = op.state.row_len() * op.state.dtype.bytes();
    let start_bytes = op.state.offset * op.state.dtype.bytes();
    let block_bytes = op.pool.layout.block_bytes();
    if !op.state.is_contiguous() || row_bytes % 4 != 0 || start_bytes % 4 != 0 {
        return Err(shape_error(OP, "state", "contiguous words", format!("{:?}", op.state)));
    }
    let pages = &op.pool.pages;
    pages.expect(OP, "pool", DType::U8, &[pages.rows(), block_bytes])?;
    if !pages.is_contiguous() || block_bytes % 4 != 0 || pages.offset % 4 != 0 {
        return Err(shape_error(OP, "pool", "contiguous words", format!("{pages:?}")));
    }
    let sizes = PageSizes {
        row: row_bytes / 4,
        block: block_bytes / 4,
        blocks: op.table.rows().max(1) - 1,
    };
    if op.state_start + op.words > sizes.row {
        return Err(shape_error(OP, "state", op.state_start + op.words, sizes.row));
    }
    if op.page_start + op.words > sizes.block * sizes.blocks {
        let stream = sizes.block * sizes.blocks;
        return Err(shape_error(OP, "table", op.page_start + op.words, stream));
    }
    Ok(sizes)
}

/// Query and key heads of the size the pool holds.
///
/// # Errors
/// Shape error.
pub fn prepare_attention<B: Backend>(op: &PrepareAttention<'_, B>) -> Result<usize> {
    let layout = op.pool.layout;
    if op.k.heads != layout.kv_heads || op.k.dim != layout.head_dim || op.k.stride != op.k.dim {
        return Err(shape_error(
            "prepare_attention",
            "k",
            format!("{} packed heads of {}", layout.kv_heads, layout.head_dim),
            format!("{} of {} at {}", op.k.heads, op.k.dim, op.k.stride),
        ));
    }
    Ok(op.q.rows())
}
