//! Which kernel and which geometry `linear` and `moe_linear` launch; pure.

use crate::pass::Kernel;
use crate::repack::Layout;
use forge_core::weights::quant::StorageType;

/// Copies in flight of a warp of `linear_rows`, as in the kernel.
const STAGES: u32 = 4;
/// Bytes of a partial sum of 16 rows by 8 columns, as in the kernel.
const PARTIAL_BYTES: u32 = 8 * 20 * 4;
/// Eights of rows that a block of `linear_rows` multiplies.
pub(crate) fn eights(rows: u32) -> u32 {
    match rows {
        ..=8 => 1,
        9..=16 => 2,
        _ => 4,
    }
}

macro_rules! kernels {
    ($($storage:ident, $name:literal, $file:literal;)*) => {
        /// The kernel for few rows.
        pub(crate) fn rows_kernel(storage: StorageType, eights: u32) -> Kernel {
            let (file, one, two, four) = match storage {
                $(StorageType::$storage => (
                    concat!("linear_rows_", $file),
                    concat!("linear_rows_", $name, "_1"),
                    concat!("linear_rows_", $name, "_2"),
                    concat!("linear_rows_", $name, "_4"),
                ),)*
                StorageType::Bf16 => return rows_kernel(StorageType::F16, eights),
            };
            Kernel::new(file, match eights { 1 => one, 2 => two, _ => four })
        }
        /// The kernel for many rows, `tokens` of which a block takes.
        pub(crate) fn tiles_kernel(storage: StorageType, tokens: u32) -> Kernel {
            let (file, small, large) = match storage {
                $(StorageType::$storage => (
                    concat!("linear_tiles_", $file),
                    concat!("linear_tiles_", $name, "_4"),
                    concat!("linear_tiles_", $name, "_8"),
                ),)*
                StorageType::Bf16 => return tiles_kernel(StorageType::F16, tokens),
            };
            Kernel::new(file, if tokens == 64 { small } else { large })
        }
    };
}
kernels! {
    F32, "f32", "float";
    F16, "f16", "float";
    Q8_0, "q8_0", "q";
    Q4_0, "q4_0", "q";
    Q4_1, "q4_1", "q";
    Q5_0, "q5_0", "q";
    Q5_1, "q5_1", "q";
    Q2_K, "q2_k", "k";
    Q3_K, "q3_k", "k";
    Q4_K, "q4_k", "k";
    Q5_K, "q5_k", "k";
    Q6_K, "q6_k", "k";
    Iq2Xxs, "iq2_xxs", "iq";
    Iq2Xs, "iq2_xs", "iq";
    Iq3Xxs, "iq3_xxs", "iq";
    Iq4Nl, "iq4_nl", "iq";
    Iq4Xs, "iq4_xs", "iq";
    Mxfp4, "mxfp4", "iq";
}

/// Sums that the chunks of a tile fall into, a function of their number alone: the order of addition
/// must not depend on the rows of the product or on the device. Warps of `linear_rows` share them
/// evenly, so there are few idle turns, and an even number beyond what one block always has.
pub(crate) fn classes(chunks: u32) -> u32 {
    if chunks <= 8 {
        return chunks.max(1);
    }
    // A turn costs as much as 4 idle warps.
    let cost = |classes: u32| chunks.div_ceil(classes) * (classes + 4);
    let candidates = (8..=chunks.min(16)).rev().filter(|classes| classes.is_multiple_of(2));
    candidates.min_by_key(|&classes| cost(classes)).unwrap_or(8)
}

/// Geometry of a block of `linear_rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsShape {
    pub(crate) warps: u32,
    pub(crate) shared_bytes: u32,
}

/// Warps that share a tile: all classes where few tiles leave it to the block alone to hide the
/// latency; with many tiles several blocks of at most ten warps do.
pub(crate) fn rows_shape(
    record_bytes: u32,
    eights: u32,
    (tiles, chunks): (u32, u32),
    (sms, max_shared_bytes): (u32, u32),
) -> RowsShape {
    let classes = classes(chunks);
    let bytes = |warps: u32| warps * STAGES * record_bytes + classes * eights * PARTIAL_BYTES;
    let most = if eights > 1 {
        8
    } else if tiles <= 2 * sms {
        16
    } else {
        10
    };
    let fits = |&warps: &u32| {
        classes.is_multiple_of(warps) && bytes(warps) <= max_shared_bytes.max(48 << 10)
    };
    let warps = (1..=most).rev().find(fits).unwrap_or(1);
    RowsShape { warps, shared_bytes: bytes(warps) }
}

/// A variant of `linear_tiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    /// Rows of the activations that a block takes: 64 or 128.
    pub(crate) tokens: u32,
    /// Tiles of 16 output rows of a block.
    pub(crate) row_tiles: u32,
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
}

impl Tiling {
    /// The variant of a type; mirrors `Shape` of the kernel.
    pub(crate) fn new(storage: StorageType, tokens: u32) -> Self {
        const ROW_TILES: u32 = 8;
        const THREADS: u32 = 256;
        let layout = Layout::of(storage);
        let (columns, record_bytes) = (layout.columns as u32, layout.bytes as u32);
        // Scales and minimums of a group of 32 columns.
        let (scales, minimums) = scale_counts(storage);
        let steps = (columns / 128).max(1);
        let groups = if storage == StorageType::F32 { 2 } else { 4 };
        let large = tokens == 128;
        let stages = if large { 3 } else { 2 };
        let ring = if steps == 1 { stages } else { 2 };
        let column_bytes = if scales == 0 { 0 } else { 4 + 16 * minimums };
        let stage = tokens * (groups * 64 + column_bytes);
        let heads = ROW_TILES * steps * 4 * (scales + minimums) * 64;
        let totals = if large { tokens * ROW_TILES * 16 * 4 } else { 0 };
        let records = ring * ROW_TILES * record_bytes;
        let shared_bytes = records + stages * stage + heads + totals + tokens * 4;
        Self { tokens, row_tiles: ROW_TILES, threads: THREADS, shared_bytes }
    }
}

/// Scales and minimums of 32 columns of a type.
fn scale_counts(storage: StorageType) -> (u32, u32) {
    use StorageType as S;
    match storage {
        S::F32 | S::F16 | S::Bf16 => (0, 0),
        S::Q4_1 | S::Q5_1 | S::Q4_K | S::Q5_K => (1, 1),
        S::Q3_K | S::Q6_K | S::Iq2Xs => (2, 0),
        S::Q2_K => (2, 2),
        _ => (1, 0),
    }
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// By `linear_rows`, `8 * eights` rows a block.
    Rows { eights: u32 },
    /// By `linear_tiles`, `tokens` rows a block.
    Tiles { tokens: u32 },
}

impl Plan {
    /// Rows of the activations that a block takes.
    pub(crate) fn width(&self) -> u32 {
        match self {
            Self::Rows { eights } => 8 * eights,
            Self::Tiles { tokens } => *tokens,
        }
    }
}

/// Rows up to which `linear_rows` reads the weights fewer times than it pays for.
const FEW_ROWS: u32 = 32;
/// Time of a step of `linear_tiles` that does not grow with its tokens, in tokens: on an H200 128
/// of them take 1.73 times as long as 64.
const STEP_TOKENS: u32 = 24;
/// Time of 32 rows by a tile of 16 of the weights in `linear_rows`, in the same unit: what a token
/// by 128 rows of the weights takes in `linear_tiles`. Measured as well: 9 to 12.
const ROWS_COST: u32 = 11;

/// The plan that finishes first, for all rows in order.
pub(crate) fn plan(
    storage: StorageType,
    tiles: u32,
    rows: u32,
    (sms, max_shared_bytes): (u32, u32),
) -> Plan {
    let few = Plan::Rows { eights: eights(rows) };
    if rows <= FEW_ROWS {
        return few;
    }
    let cost = |tiling: &Tiling| {
        let blocks = tiles.div_ceil(tiling.row_tiles).saturating_mul(rows.div_ceil(tiling.tokens));
        blocks.div_ceil(sms).saturating_mul(tiling.tokens + STEP_TOKENS)
    };
    let variants = [128, 64].map(|tokens| Tiling::new(storage, tokens));
    let fitting = variants.iter().filter(|tiling| tiling.shared_bytes <= max_shared_bytes);
    let many = fitting.min_by_key(|tiling| cost(tiling));
    let few_cost = tiles.saturating_mul(rows.div_ceil(32)).saturating_mul(ROWS_COST) / sms;
    match many {
        Some(tiling) if cost(tiling) <= few_cost => Plan::Tiles { tokens: tiling.tokens },
        _ => few,
    }
}

/// The plan for entries that experts chose, `average` for each expert if all are chosen alike; one
/// for all types, because they share the segments.
pub(crate) fn experts_plan(
    mut storages: impl Iterator<Item = StorageType>,
    rows: u32,
    average: u32,
    max_shared_bytes: u32,
) -> Plan {
    let tokens = if average < 96 { 64 } else { 128 };
    let mut fits =
        |tokens| storages.all(|s| Tiling::new(s, tokens).shared_bytes <= max_shared_bytes);
    if average > FEW_ROWS && fits(tokens) {
        return Plan::Tiles { tokens };
    }
    // A row rarely names an expert twice, so an expert has at most about as many entries as rows.
    Plan::Rows { eights: eights(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: (u32, u32) = (132, 232_448);
    const ADA: (u32, u32) = (128, 101_376);

    #[test]
    fn warps_fit_chunks_and_shared_memory() {
        for storage in StorageType::ALL {
            let bytes = Layout::of(storage).bytes as u32;
            for eights in [1, 2, 4] {
                for chunks in [1, 2, 7, 10, 40, 136] {
                    for tiles in [1, 160, 15_520] {
                        for device in [H200, ADA] {
                            let shape = rows_shape(bytes, eights, (tiles, chunks), device);
                            assert!(
                                classes(chunks).is_multiple_of(shape.warps) && shape.warps <= 16
                            );
                            assert!(shape.shared_bytes <= device.1, "{storage} {shape:?}");
                            assert!(eights == 1 || shape.warps <= 8);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_turn_is_wasted_on_usual_shapes() {
        let found = [1, 7, 10, 16, 20, 32, 36, 40, 68, 136].map(classes);
        assert_eq!(found, [1, 7, 10, 16, 10, 16, 12, 14, 14, 16]);
        // 2560 columns of Q8_0 in many tiles, 4096 columns in few.
        assert_eq!(rows_shape(2176, 1, (15_520, 20), H200).warps, 10);
        assert_eq!(rows_shape(2176, 1, (160, 32), H200).warps, 16);
        for chunks in 1..1000 {
            let classes = classes(chunks);
            assert!(classes <= chunks.min(16) && (classes <= 8 || classes % 2 == 0), "{chunks}");
        }
    }

    #[test]
    fn some_tiling_of_every_type_fits_every_device() {
        for storage in StorageType::ALL {
            assert!(Tiling::new(storage, 64).shared_bytes <= ADA.1, "{storage}");
            assert!(Tiling::new(storage, 128).shared_bytes <= H200.1, "{storage}");
        }
    }

    #[test]
    fn large_products_take_tiles_and_small_ones_rows() {
        let tokens = |tiles, rows| match plan(StorageType::Q4_K, tiles, rows, H200) {
            Plan::Rows { .. } => 0,
            Plan::Tiles { tokens } => tokens,
        };
        assert_eq!(tokens(2176, 1024), 128);
        assert_eq!(tokens(2176, 32), 0);
        assert_eq!(tokens(3, 300), 0);
        let plan = plan(StorageType::Q4_K, 2176, 1024, ADA);
        assert_eq!(plan.width(), 64);
    }

    #[test]
    fn every_type_has_kernels_of_its_name() {
        for storage in StorageType::ALL.into_iter().filter(|&s| s != StorageType::Bf16) {
            let kernel = rows_kernel(storage, 2);
            assert_eq!(kernel.entry, format!("linear_rows_{}_2", storage.name()));
        }
    }
}
