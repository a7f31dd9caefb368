//! `paged_attention`: checks, choice of kernel, geometry.
//!
//! Three kernels: split keys for few rows (`decode`), tiles of rows for many (`prefill`), and a
//! plain one for f32 KV and uncommon head sizes. Real lengths are known on the device alone, so each
//! is right for any split of the rows over the sequences; the shape of the pass chooses the fast one.

use super::{contiguous, stride};
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::kv::KvType;
use forge_core::ops::{PagedAttention, SEQUENCE_FIELDS};
use forge_core::tensor::{DType, Tensor, shape_error};
use forge_core::{Error, Result};

const OP: &str = "paged_attention";

/// Rows per sequence up to which the keys of a sequence are split over blocks.
const DECODE_ROWS: u32 = 8;
/// Items (row times query head of a KV head) of a block of the decode kernel.
const DECODE_ITEMS: u32 = 16;
/// Most splits of a sequence; each costs its partial result.
const MAX_SPLITS: u32 = 128;

/// The names of a kernel for f16, bf16, q8_0 and fp8.
macro_rules! by_type {
    ($kernel:literal, $variant:literal) => {
        by_type!($kernel, $variant, $variant)
    };
    ($kernel:literal, $wide:literal, $narrow:literal) => {
        [
            Kernel::new($kernel, concat!($kernel, "_f16", $wide)),
            Kernel::new($kernel, concat!($kernel, "_bf16", $wide)),
            Kernel::new($kernel, concat!($kernel, "_q8_0", $narrow)),
            Kernel::new($kernel, concat!($kernel, "_fp8", $narrow)),
        ]
    };
}

/// Shared memory of a block, which decides tile sizes; the kernels compile one variant each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SharedMemory {
    /// 227 KiB.
    Large,
    /// 163 KiB.
    Medium,
    /// 99 KiB.
    Small,
}

impl SharedMemory {
    fn of(capability: u32) -> Self {
        match capability {
            90..=119 => Self::Large,
            80 | 87 => Self::Medium,
            _ => Self::Small,
        }
    }
}

/// Sizes of a call, checked.
struct Geometry {
    rows: u32,
    sequences: u32,
    max_blocks: u32,
    kv_heads: u32,
    group: u32,
    head_dim: u32,
    kv_type: KvType,
    /// Vector loads of `q`, pages and `out` are possible.
    aligned: bool,
}

/// Checks a sequence table and returns its lines.
pub(crate) fn sequence_count(op: &'static str, sequences: &Tensor<Cuda>) -> Result<u32> {
    let count = sequences.rows();
    sequences.expect(op, "sequences", DType::I32, &[count, SEQUENCE_FIELDS])?;
    contiguous(op, "sequences", sequences)?;
    // A line is one 16-byte load.
    if !sequences.offset.is_multiple_of(SEQUENCE_FIELDS) {
        return Err(Error::unsupported(op, "a sequence table that starts inside a line"));
    }
    index32(op, "sequences", count)
}

impl Geometry {
    fn check(op: &PagedAttention<'_, Cuda>) -> Result<Self> {
        let layout = op.pool.layout;
        let (heads, kv_heads) = (op.q.heads, layout.kv_heads);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || op.q.dim != layout.head_dim {
            let expected = format!("multiple of {kv_heads} heads of {}", layout.head_dim);
            return Err(shape_error(OP, "q", expected, format!("{heads} of {}", op.q.dim)));
        }
        layout.check()?;
        let pages = &op.pool.pages;
        pages.expect(OP, "pages", DType::U8, &[pages.rows(), layout.block_bytes()])?;
        contiguous(OP, "pages", pages)?;
        let rows = index32(OP, "rows", op.q.rows())?;
        op.out.expect(OP, "out", DType::F32, &[op.q.rows(), heads * op.q.dim])?;
        let sequences = sequence_count(OP, op.sequences)?;
        let max_blocks = op.block_table.row_len();
        op.block_table.expect(OP, "block_table", DType::I32, &[op.sequences.rows(), max_blocks])?;
        contiguous(OP, "block_table", op.block_table)?;
        let whole = |values: usize| values.is_multiple_of(4);
        let aligned = whole(op.q.tensor.offset)
            && whole(op.q.tensor.row_stride)
            && whole(op.q.stride)
            && whole(op.out.offset)
            && whole(op.out.row_stride)
            && pages.offset.is_multiple_of(16)
            && layout.block_bytes().is_multiple_of(16);
        Ok(Self {
            rows,
            sequences,
            max_blocks: index32(OP, "max_blocks", max_blocks)?,
            kv_heads: index32(OP, "kv_heads", kv_heads)?,
            group: index32(OP, "group", heads / kv_heads)?,
            head_dim: index32(OP, "head_dim", op.q.dim)?,
            kv_type: layout.kv_type,
            aligned,
        })
    }
    /// Index of the KV type in the kernel tables; none for f32, which has only the plain kernel.
    fn type_index(&self) -> Option<usize> {
        match self.kv_type {
            KvType::F32 => None,
            KvType::F16 => Some(0),
            KvType::Bf16 => Some(1),
            KvType::Q8_0 => Some(2),
            KvType::Fp8 => Some(3),
        }
    }
    fn narrow(&self) -> bool {
        matches!(self.kv_type, KvType::Q8_0 | KvType::Fp8)
    }
    /// Bytes of the scales of one token's head.
    fn scale_bytes(&self) -> u32 {
        if self.kv_type == KvType::Q8_0 { self.head_dim / 16 } else { 0 }
    }
}

pub(crate) fn paged_attention(pass: &mut Pass<'_>, op: PagedAttention<'_, Cuda>) -> Result<()> {
    let geometry = Geometry::check(&op)?;
    if geometry.rows == 0 || geometry.sequences == 0 {
        return Ok(());
    }
    let fits = geometry.aligned && geometry.group <= 16;
    match geometry.type_index().filter(|_| fits && matches!(geometry.head_dim, 64 | 128 | 256)) {
        None => simple(pass, &op, &geometry),
        Some(kv) if geometry.rows <= DECODE_ROWS * geometry.sequences => {
            decode(pass, &op, &geometry, kv, 0)
        }
        Some(kv) if geometry.sequences == 1 => prefill(pass, &op, &geometry, kv, 0),
        // Prompts beside running streams: each sequence goes to the kernel that its rows ask for.
        Some(kv) => {
            prefill(pass, &op, &geometry, kv, DECODE_ROWS)?;
            decode(pass, &op, &geometry, kv, DECODE_ROWS)
        }
    }
}

/// The arguments that all kernels begin with.
fn common<'a>(op: &'a PagedAttention<'_, Cuda>, geometry: &Geometry) -> Vec<Arg<'a>> {
    vec![
        (&op.q.tensor).into(),
        stride(&op.q.tensor),
        (op.q.stride as u64).into(),
        (&op.pool.pages).into(),
        op.sequences.into(),
        geometry.sequences.into(),
        op.block_table.into(),
        geometry.max_blocks.into(),
        op.scale.into(),
        (&*op.out).into(),
        stride(op.out),
    ]
}

/// Leaves sequences of `skipped_rows` rows or fewer alone.
fn prefill(
    pass: &mut Pass<'_>,
    op: &PagedAttention<'_, Cuda>,
    geometry: &Geometry,
    kv: usize,
    skipped_rows: u32,
) -> Result<()> {
    const KERNEL_64: [Kernel; 4] = by_type!("paged_attention_prefill", "_64_128x64");
    const KERNEL_128: [Kernel; 4] = by_type!("paged_attention_prefill", "_128_128x64");
    const LARGE_256: [Kernel; 4] = by_type!("paged_attention_prefill", "_256_128x64");
    const MEDIUM_256: [Kernel; 4] = by_type!("paged_attention_prefill", "_256_128x32");
    const SMALL_256: [Kernel; 4] = by_type!("paged_attention_prefill", "_256_64x32");
    let memory = SharedMemory::of(pass.capability());
    let (kernels, items, tile) = match (geometry.head_dim, memory) {
        (64, _) => (KERNEL_64, 128, 64),
        (128, _) => (KERNEL_128, 128, 64),
        (_, SharedMemory::Large) => (LARGE_256, 128, 64),
        (_, SharedMemory::Medium) => (MEDIUM_256, 128, 32),
        (_, SharedMemory::Small) => (SMALL_256, 64, 32),
    };
    let pieces = u64::from(geometry.rows) * u64::from(geometry.group);
    let pieces = index32(OP, "items", pieces.div_ceil(u64::from(items)) as usize)?;
    let launch = Launch::new(OP, kernels[kv])
        .grid(pieces + geometry.sequences, geometry.kv_heads, 1)
        .block(2 * items)
        .shared(prefill_shared_bytes(geometry, items, tile))
        .overlap();
    let mut args = common(op, geometry);
    args.extend([
        Arg::U32(geometry.rows),
        Arg::U32(geometry.kv_heads),
        Arg::U32(geometry.group),
        Arg::U32(skipped_rows),
    ]);
    pass.launch(launch, &args)
}

/// Queries, and two tiles of keys and values in 16 bits, or one and its stored form.
fn prefill_shared_bytes(geometry: &Geometry, items: u32, tile: u32) -> u32 {
    let queries = items * geometry.head_dim * 2;
    let pair = 2 * tile * geometry.head_dim * 2;
    let stored = 2 * tile * (geometry.head_dim + geometry.scale_bytes());
    queries + pair + if geometry.narrow() { stored } else { pair }
}

/// Leaves sequences of more than `row_limit` rows alone, unless it is 0.
fn decode(
    pass: &mut Pass<'_>,
    op: &PagedAttention<'_, Cuda>,
    geometry: &Geometry,
    kv: usize,
    row_limit: u32,
) -> Result<()> {
    const KERNEL_64: [Kernel; 4] = by_type!("paged_attention_decode", "_64_4x4");
    const KERNEL_128: [Kernel; 4] = by_type!("paged_attention_decode", "_128_4x4");
    const LARGE_256: [Kernel; 4] = by_type!("paged_attention_decode", "_256_8x3", "_256_8x4");
    const MEDIUM_256: [Kernel; 4] = by_type!("paged_attention_decode", "_256_4x3", "_256_4x4");
    const SMALL_256: [Kernel; 4] = by_type!("paged_attention_decode", "_256_4x2");
    const COMBINE: [Kernel; 3] = [
        Kernel::new("paged_attention_decode", "paged_attention_combine_64"),
        Kernel::new("paged_attention_decode", "paged_attention_combine_128"),
        Kernel::new("paged_attention_decode", "paged_attention_combine_256"),
    ];
    let memory = SharedMemory::of(pass.capability());
    let narrow = u32::from(geometry.narrow());
    let (kernels, combine, warps, depth) = match (geometry.head_dim, memory) {
        (64, _) => (KERNEL_64, COMBINE[0], 4, 4),
        (128, _) => (KERNEL_128, COMBINE[1], 4, 4),
        (_, SharedMemory::Large) => (LARGE_256, COMBINE[2], 8, 3 + narrow),
        (_, SharedMemory::Medium) => (MEDIUM_256, COMBINE[2], 4, 3 + narrow),
        (_, SharedMemory::Small) => (SMALL_256, COMBINE[2], 4, 2),
    };
    let heads = geometry.kv_heads * geometry.group;
    let mean_rows = geometry.rows.div_ceil(geometry.sequences).min(DECODE_ROWS);
    let item_tiles = (mean_rows * geometry.group).div_ceil(DECODE_ITEMS);
    let launch = Launch::new(OP, kernels[kv])
        .block(32 * warps)
        .shared(decode_shared_bytes(geometry, warps, depth))
        .overlap();
    // One wave of blocks: more splits than that only add partial results.
    let resident = pass.resident_blocks(&launch)?;
    let splits =
        (resident / (geometry.kv_heads * geometry.sequences * item_tiles)).clamp(1, MAX_SPLITS);
    let partial_rows = if row_limit > 0 { geometry.sequences * row_limit } else { geometry.rows };
    let partial_values = u64::from(partial_rows)
        * u64::from(heads)
        * u64::from(splits)
        * u64::from(geometry.head_dim + 2);
    // With one split nothing is ever partial.
    let partial_values = if splits > 1 { partial_values as usize } else { 0 };
    let partials = pass.scratch(partial_values.max(1) * 4)?;
    let mut args = common(op, geometry);
    args.extend([
        Arg::from(&partials),
        Arg::U32(partial_rows),
        Arg::U32(row_limit),
        Arg::U32(geometry.rows),
        Arg::U32(geometry.kv_heads),
        Arg::U32(geometry.group),
        Arg::U32(splits),
        Arg::U32(item_tiles),
    ]);
    pass.launch(launch.grid(splits * item_tiles, geometry.kv_heads, geometry.sequences), &args)?;
    if splits == 1 {
        return Ok(());
    }
    let launch = Launch::new(OP, combine)
        .grid(partial_rows, heads, 1)
        .block(geometry.head_dim / 4)
        .overlap();
    pass.launch(
        launch,
        &[
            op.sequences.into(),
            geometry.sequences.into(),
            (&partials).into(),
            (&*op.out).into(),
            stride(op.out),
            row_limit.into(),
            splits.into(),
        ],
    )
}

/// Queries in two halves, and the warps' rings (with a converted plane for narrow types), which
/// become the table of their results.
fn decode_shared_bytes(geometry: &Geometry, warps: u32, depth: u32) -> u32 {
    let dim = geometry.head_dim;
    let wide_plane = 16 * dim * 2;
    let ring = if geometry.narrow() {
        depth * 16 * (dim + geometry.scale_bytes()) + wide_plane
    } else {
        depth * wide_plane
    };
    let results = DECODE_ITEMS * (dim + 8) * 4;
    DECODE_ITEMS * dim * 4 + warps * ring.max(results)
}

fn simple(pass: &mut Pass<'_>, op: &PagedAttention<'_, Cuda>, geometry: &Geometry) -> Result<()> {
    const F32: Kernel = Kernel::new("paged_attention_simple", "paged_attention_simple_f32");
    const OTHERS: [Kernel; 4] = by_type!("paged_attention_simple", "");
    if geometry.head_dim > 256 {
        let reason = format!("head size {}, at most 256", geometry.head_dim);
        return Err(Error::unsupported(OP, reason));
    }
    let kernel = geometry.type_index().map_or(F32, |kv| OTHERS[kv]);
    let launch = Launch::new(OP, kernel)
        .grid(geometry.rows, geometry.kv_heads * geometry.group, 1)
        .block(128)
        .overlap();
    let mut args = common(op, geometry);
    args.extend([
        Arg::U32(geometry.kv_heads),
        Arg::U32(geometry.group),
        Arg::U32(geometry.head_dim),
    ]);
    pass.launch(launch, &args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::fake;
    use crate::tests::{f32s, i32s, launches, open};
    use forge_core::kv::{KvLayout, KvPool};
    use forge_core::tensor::Heads;

    fn geometry(head_dim: u32, kv_type: KvType) -> Geometry {
        Geometry {
            rows: 1,
            sequences: 1,
            max_blocks: 1,
            kv_heads: 1,
            group: 1,
            head_dim,
            kv_type,
            aligned: true,
        }
    }

    #[test]
    fn tiles_fit_the_shared_memory_they_are_chosen_for() {
        let all = [KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8];
        // Decode has 1 KiB of static shared memory at most besides.
        for kv_type in all {
            let narrow = u32::from(matches!(kv_type, KvType::Q8_0 | KvType::Fp8));
            let large = geometry(256, kv_type);
            assert!(prefill_shared_bytes(&large, 128, 64) <= 227 << 10);
            assert!(prefill_shared_bytes(&large, 128, 32) <= 163 << 10);
            assert!(prefill_shared_bytes(&large, 64, 32) <= 99 << 10);
            assert!(decode_shared_bytes(&large, 8, 3 + narrow) <= 226 << 10);
            assert!(decode_shared_bytes(&large, 4, 3 + narrow) <= 162 << 10);
            assert!(decode_shared_bytes(&large, 4, 2) <= 98 << 10);
            for head_dim in [64, 128] {
                let small = geometry(head_dim, kv_type);
                assert!(prefill_shared_bytes(&small, 128, 64) <= 99 << 10);
                assert!(decode_shared_bytes(&small, 4, 4) <= 98 << 10);
            }
        }
    }

    #[test]
    fn every_kind_of_pass_launches_for_every_kv_type() {
        let Some(cuda) = open() else { return };
        let kv_types = [KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8];
        let sizes = [16, 32, 64, 128, 256];
        for (kv_type, head_dim) in kv_types.into_iter().flat_map(|t| sizes.map(|d| (t, d))) {
            let layout = KvLayout { kv_type, kv_heads: 2, head_dim };
            let pool = KvPool::new(&cuda, layout, 8).unwrap();
            // Rows, sequences, and launches of the kernels for tensor cores.
            for (rows, sequences, fast) in [(1, 1, 2), (3, 1, 2), (40, 1, 1), (8, 8, 2), (99, 3, 3)]
            {
                let q = f32s(&cuda, &[rows, 12 * 2 * head_dim]);
                let q = Heads::strided(q, 12, 2 * head_dim, head_dim).unwrap();
                let mut out = f32s(&cuda, &[rows, 12 * head_dim]);
                let table = i32s(&cuda, &[sequences, 8]);
                let lines = i32s(&cuda, &[sequences, SEQUENCE_FIELDS]);
                fake::take_grids();
                let count = launches(&cuda, |pass| {
                    paged_attention(
                        pass,
                        PagedAttention {
                            q: &q,
                            pool: &pool,
                            sequences: &lines,
                            block_table: &table,
                            scale: 1.0,
                            out: &mut out,
                        },
                    )
                });
                // Where a device holds few blocks one split is all, and needs no sum of splits.
                let simple = kv_type == KvType::F32 || head_dim < 64;
                let (least, most) = if simple { (1, 1) } else { (fast.max(2) - 1, fast) };
                let fits = (least..=most).contains(&count);
                assert!(fits, "{kv_type:?} {head_dim} {rows}/{sequences}: {count} launches");
                assert!(fake::take_grids().iter().flatten().all(|blocks| *blocks > 0));
            }
        }
    }
}
