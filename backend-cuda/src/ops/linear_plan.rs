//! Which kernel and which geometry `linear` and `moe_linear` launch; pure.

use crate::pass::Kernel;
use forge_core::weights::quant::StorageType;

/// Copies in flight of a warp of `linear_rows`, as in the kernel.
const STAGES: u32 = 4;
/// Bytes of a partial sum of 16 rows by 8 columns, as in the kernel.
const PARTIAL_BYTES: u32 = 8 * 20 * 4;
/// From here on, two passes over the weights by `linear_rows` cost more than `linear_tiles` with
/// its dequantised slab.
const MANY_ROWS: u32 = 65;

/// True if `linear_rows` takes the product. F32 weights always: f16 operands would not do for them.
pub(crate) fn few_rows(storage: StorageType, rows: u32) -> bool {
    rows < MANY_ROWS || storage == StorageType::F32
}

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
        /// The kernel that turns records into F16 records. Floats have none: no caller asks.
        pub(crate) fn dequantize_kernel(storage: StorageType) -> Kernel {
            Kernel::new("dequantize", match storage {
                $(StorageType::$storage => concat!("dequantize_", $name),)*
                StorageType::Bf16 => "dequantize_f16",
            })
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

/// Geometry of a block of `linear_rows`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsShape {
    pub(crate) warps: u32,
    pub(crate) shared_bytes: u32,
}

/// Warps that share a tile. With few tiles the block alone must hide the latency, so it takes what
/// finishes in the fewest rounds; with many tiles several blocks do, and idle warps of the last
/// round count most.
pub(crate) fn rows_shape(
    record_bytes: u32,
    eights: u32,
    (tiles, chunks): (u32, u32),
    (sms, max_shared_bytes): (u32, u32),
) -> RowsShape {
    let warp_bytes = STAGES * record_bytes + eights * PARTIAL_BYTES;
    let most = if eights == 1 { 16 } else { 8 };
    let most = most.min(chunks).min(max_shared_bytes.max(48 << 10) / warp_bytes).max(1);
    let few_tiles = tiles <= 2 * sms;
    let cost = |warps: u32| {
        let rounds = chunks.div_ceil(warps);
        if few_tiles { (rounds, warps) } else { (rounds * warps, warps.abs_diff(8)) }
    };
    let least = if few_tiles { 1 } else { 5.min(most) };
    let most = if few_tiles { most } else { most.min(10) };
    let warps = (least..=most).min_by_key(|&warps| cost(warps)).unwrap_or(1);
    RowsShape { warps, shared_bytes: warps * warp_bytes }
}

/// A variant of `linear_tiles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub(crate) kernel: Kernel,
    /// Output rows of a block.
    pub(crate) rows: u32,
    /// Tokens of a block.
    pub(crate) tokens: u32,
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
    /// Blocks of an SM.
    pub(crate) on_sm: u32,
}

impl Tiling {
    const fn new(entry: &'static str, rows: u32, tokens: u32, threads: u32, on_sm: u32) -> Self {
        let kernel = Kernel::new("linear_tiles", entry);
        Self { kernel, rows, tokens, threads, shared_bytes: 3 * (rows + tokens) * 64, on_sm }
    }
    /// Blocks that cover a product.
    fn blocks(&self, rows: u32, tokens: u32) -> u32 {
        rows.div_ceil(self.rows).saturating_mul(tokens.div_ceil(self.tokens))
    }
    /// Tiles of 16 rows that whole waves of blocks take: at least as many as fill the device once,
    /// and more as long as their f16 weights stay below `bytes`.
    pub(crate) fn slab_tiles(
        &self,
        tokens: u32,
        sms: u32,
        tile_bytes: usize,
        bytes: usize,
    ) -> usize {
        let wave = (sms * self.on_sm / tokens.div_ceil(self.tokens)).max(1) as usize;
        let wave = wave * self.rows as usize / 16;
        wave * (bytes / (wave * tile_bytes)).max(1)
    }
}

/// Variants of `linear_tiles` and the share of the peak that their shape reaches, in percent: small
/// blocks read their operands more often, from L2 and from shared memory.
const TILINGS: [(Tiling, u64); 4] = [
    (Tiling::new("linear_tiles_256x128", 256, 128, 256, 1), 100),
    (Tiling::new("linear_tiles_128x128", 128, 128, 128, 2), 85),
    (Tiling::new("linear_tiles_64x128", 64, 128, 128, 3), 65),
    (Tiling::new("linear_tiles_64x64", 64, 64, 128, 4), 50),
];

/// The variant that finishes first: blocks of an SM share it, and the last wave may leave SMs idle.
pub(crate) fn tiling(rows: u32, tokens: u32, sms: u32) -> Tiling {
    let cost = |(tiling, share): &(Tiling, u64)| {
        let (blocks, wave) = (tiling.blocks(rows, tokens), sms * tiling.on_sm);
        let rounds = u64::from(blocks / wave * tiling.on_sm + (blocks % wave).div_ceil(sms));
        rounds * u64::from(tiling.rows * tiling.tokens) * 100 / share
    };
    TILINGS.iter().min_by_key(|variant| cost(variant)).unwrap_or(&TILINGS[0]).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repack::Layout;

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
                            assert!(shape.warps >= 1 && shape.warps <= chunks.min(16));
                            assert!(shape.shared_bytes <= device.1, "{storage} {shape:?}");
                            assert!(eights == 1 || shape.warps <= 8);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_round_is_wasted_on_usual_shapes() {
        // 2560 columns of Q8_0 in many tiles, 4096 columns in few.
        assert_eq!(rows_shape(2176, 1, (15_520, 20), H200).warps, 10);
        assert_eq!(rows_shape(2176, 1, (160, 32), H200).warps, 16);
    }

    #[test]
    fn large_products_take_large_tiles() {
        assert_eq!(tiling(4096, 1024, 132).rows, 256);
        assert_eq!(tiling(64, 65, 132).tokens, 64);
    }

    #[test]
    fn slabs_are_whole_waves() {
        let large = TILINGS[0].0;
        // 16 blocks of 256 rows beside 8 of tokens fill 128 of 132 SMs.
        assert_eq!(large.slab_tiles(1024, 132, 5120 * 32, 32 << 20), 256);
        assert_eq!(large.slab_tiles(1024, 132, 1024 * 32, 32 << 20), 4 * 256);
        assert!(large.slab_tiles(100_000, 132, 5120 * 32, 32 << 20) >= 16);
    }

    #[test]
    fn every_type_has_kernels_of_its_name() {
        for storage in StorageType::ALL.into_iter().filter(|&s| s != StorageType::Bf16) {
            let kernel = rows_kernel(storage, 2);
            assert_eq!(kernel.entry, format!("linear_rows_{}_2", storage.name()));
        }
    }
}
