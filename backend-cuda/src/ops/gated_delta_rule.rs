//! `gated_delta_rule`: checks, choice of form, geometry.

use super::paged_attention::sequence_count;
use super::{contiguous, stride};
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::ops::{GatedDeltaRule, HeadMap};
use forge_core::tensor::{DType, shape_error};
use forge_core::{Error, Result};

const OP: &str = "gated_delta_rule";

/// State columns of a warp of the recurrent kernel.
const RECURRENT_COLUMNS: u32 = 8;

/// Rows of a chunk.
const CHUNK: u32 = 64;
/// Value columns of a warp of the chunked kernel's scan.
const SCAN_COLUMNS: u32 = 16;
/// Scratch of a value head's chunk: four planes of 64 x 64 bf16, and two rows of gates in f32.
const PRODUCT_BYTES: u32 = 4 * CHUNK * CHUNK * 2;
const GATE_BYTES: u32 = 2 * CHUNK * 4;
/// Shared memory of a matrix and its inverse while a chunk is prepared, rows padded by four values.
const SQUARE_BYTES: u32 = 2 * CHUNK * (CHUNK + 4) * 4;

/// Sizes of a call, checked.
struct Geometry {
    rows: u32,
    sequences: u32,
    key_heads: u32,
    value_heads: u32,
    key_dim: u32,
    value_dim: u32,
}

impl Geometry {
    fn check(op: &GatedDeltaRule<'_, Cuda>) -> Result<Self> {
        let &[slots, value_heads, key_dim, value_dim] = op.state.shape.dims() else {
            let got = format!("{:?}", op.state);
            return Err(shape_error(OP, "state", "[slots, heads, key_dim, value_dim]", got));
        };
        op.state.expect(OP, "state", DType::F32, &[slots, value_heads, key_dim, value_dim])?;
        if op.key_heads == 0 || !value_heads.is_multiple_of(op.key_heads) {
            let expected = format!("a multiple of {} heads", op.key_heads);
            return Err(shape_error(OP, "state", expected, value_heads));
        }
        let rows = op.out.rows();
        let columns = 2 * op.key_heads * key_dim + value_heads * value_dim;
        op.out.expect(OP, "out", DType::F32, &[rows, value_heads * value_dim])?;
        op.qkv.expect(OP, "qkv", DType::F32, &[rows, columns])?;
        op.ba.expect(OP, "ba", DType::F32, &[rows, 2 * value_heads])?;
        op.head_constants.expect(OP, "head_constants", DType::F32, &[2, value_heads])?;
        contiguous(OP, "head_constants", op.head_constants)?;
        if !value_dim.is_multiple_of(8)
            || !op.state.offset.is_multiple_of(4)
            || !op.state.row_stride.is_multiple_of(4)
        {
            let reason = format!("value heads of {value_dim}, state {:?}", op.state);
            return Err(Error::unsupported(OP, reason));
        }
        Ok(Self {
            rows: index32(OP, "rows", rows)?,
            sequences: sequence_count(OP, op.sequences)?,
            key_heads: index32(OP, "key_heads", op.key_heads)?,
            value_heads: index32(OP, "value_heads", value_heads)?,
            key_dim: index32(OP, "key_dim", key_dim)?,
            value_dim: index32(OP, "value_dim", value_dim)?,
        })
    }
}

pub(crate) fn gated_delta_rule(pass: &mut Pass<'_>, op: GatedDeltaRule<'_, Cuda>) -> Result<()> {
    let geometry = Geometry::check(&op)?;
    if geometry.rows == 0 || geometry.sequences == 0 {
        return Ok(());
    }
    // The chunked form pays a fixed price per sequence. Real lengths are on the device: a pass with
    // this many rows holds a sequence for which token by token would be slow.
    let many_rows = geometry.rows >= CHUNK + 32 * geometry.sequences;
    if many_rows && geometry.value_dim.is_multiple_of(SCAN_COLUMNS) {
        chunked(pass, &op, &geometry)
    } else {
        recurrent(pass, &op, &geometry)
    }
}

/// Rows of the table of kernels for a key head size.
fn size_index(key_dim: u32) -> Result<usize> {
    match key_dim {
        16 => Ok(0),
        32 => Ok(1),
        64 => Ok(2),
        128 => Ok(3),
        other => {
            let reason = format!("key heads of {other}; 16, 32, 64 and 128 are there");
            Err(Error::unsupported(OP, reason))
        }
    }
}

/// The arguments that all kernels begin with.
fn inputs<'a>(op: &'a GatedDeltaRule<'_, Cuda>) -> Vec<Arg<'a>> {
    vec![op.qkv.into(), stride(op.qkv), op.ba.into(), stride(op.ba), op.head_constants.into()]
}

/// The arguments that all kernels end with.
fn sizes<'a>(op: &GatedDeltaRule<'_, Cuda>, geometry: &Geometry) -> [Arg<'a>; 4] {
    let modulo = u32::from(op.head_map == HeadMap::Modulo);
    [geometry.key_heads, geometry.value_heads, geometry.value_dim, modulo].map(Arg::U32)
}

fn chunked(pass: &mut Pass<'_>, op: &GatedDeltaRule<'_, Cuda>, geometry: &Geometry) -> Result<()> {
    const PREPARE_FILE: &str = "gated_delta_rule_prepare";
    const SCAN_FILE: &str = "gated_delta_rule_scan";
    const PREPARE: [Kernel; 4] = [
        Kernel::new(PREPARE_FILE, "gated_delta_rule_prepare_16"),
        Kernel::new(PREPARE_FILE, "gated_delta_rule_prepare_32"),
        Kernel::new(PREPARE_FILE, "gated_delta_rule_prepare_64"),
        Kernel::new(PREPARE_FILE, "gated_delta_rule_prepare_128"),
    ];
    // The last part of a name is the number of stages; the file compiles one of them for a device.
    const LARGE: [Kernel; 4] = [
        Kernel::new(SCAN_FILE, "gated_delta_rule_scan_16_2"),
        Kernel::new(SCAN_FILE, "gated_delta_rule_scan_32_2"),
        Kernel::new(SCAN_FILE, "gated_delta_rule_scan_64_2"),
        Kernel::new(SCAN_FILE, "gated_delta_rule_scan_128_2"),
    ];
    const OTHERS: [Kernel; 4] = [
        LARGE[0],
        LARGE[1],
        Kernel::new(SCAN_FILE, "gated_delta_rule_scan_64_1"),
        Kernel::new(SCAN_FILE, "gated_delta_rule_scan_128_1"),
    ];
    let index = size_index(geometry.key_dim)?;
    let large = matches!(pass.capability(), 90..=119);
    let stages = if large || index < 2 { 2 } else { 1 };
    let scan = if large { LARGE[index] } else { OTHERS[index] };

    let key_bytes = 4 * CHUNK * geometry.key_dim * 2;
    let chunks = geometry.rows.div_ceil(CHUNK) + geometry.sequences;
    let planes = |heads: u32, bytes: u32| chunks as usize * heads as usize * bytes as usize;
    let keys = pass.scratch(planes(geometry.key_heads, key_bytes))?;
    let products = pass.scratch(planes(geometry.value_heads, PRODUCT_BYTES))?;
    let gates = pass.scratch(planes(geometry.value_heads, GATE_BYTES))?;

    let launch = Launch::new(OP, PREPARE[index])
        .grid(chunks, geometry.key_heads, 1)
        .block(128)
        .shared(key_bytes.max(SQUARE_BYTES))
        .overlap();
    let mut args = inputs(op);
    args.extend([op.sequences.into(), Arg::U32(geometry.sequences)]);
    args.extend([&keys, &products, &gates].map(Arg::from));
    args.extend(sizes(op, geometry));
    pass.launch(launch, &args)?;

    // Two warps a block while all blocks run at once; then wider ones, which read less.
    let blocks = |warps: u32| geometry.value_dim.div_ceil(SCAN_COLUMNS * warps);
    let all = blocks(2) * geometry.value_heads * geometry.sequences;
    let warps = if all <= pass.sms() { 2 } else { 4 };
    let launch = Launch::new(OP, scan)
        .grid(blocks(warps), geometry.value_heads, geometry.sequences)
        .block(32 * warps)
        .shared(stages * (key_bytes + PRODUCT_BYTES + GATE_BYTES))
        .overlap();
    let mut args = inputs(op);
    args.extend([(&*op.state).into(), stride(op.state), op.sequences.into()]);
    args.extend([&keys, &products, &gates].map(Arg::from));
    args.extend([(&*op.out).into(), stride(op.out), Arg::U32(geometry.rows)]);
    args.extend(sizes(op, geometry));
    pass.launch(launch, &args)
}

fn recurrent(
    pass: &mut Pass<'_>,
    op: &GatedDeltaRule<'_, Cuda>,
    geometry: &Geometry,
) -> Result<()> {
    const KERNELS: [[Kernel; 2]; 4] = [
        [
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_16_2"),
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_16_4"),
        ],
        [
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_32_2"),
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_32_4"),
        ],
        [
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_64_2"),
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_64_4"),
        ],
        [
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_128_2"),
            Kernel::new("gated_delta_rule_recurrent", "gated_delta_rule_recurrent_128_4"),
        ],
    ];
    let [narrow, wide] = KERNELS[size_index(geometry.key_dim)?];
    let (kernel, warps) = if geometry.value_dim <= 16 { (narrow, 2) } else { (wide, 4) };
    let launch = Launch::new(OP, kernel)
        .grid(
            geometry.value_dim.div_ceil(RECURRENT_COLUMNS * warps),
            geometry.value_heads,
            geometry.sequences,
        )
        .block(32 * warps)
        .overlap();
    let mut args = inputs(op);
    args.extend([(&*op.state).into(), stride(op.state), op.sequences.into()]);
    args.extend([(&*op.out).into(), stride(op.out), Arg::U32(geometry.rows)]);
    args.extend(sizes(op, geometry));
    pass.launch(launch, &args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{f32s, i32s, launches, open};

    #[test]
    fn the_shape_of_the_pass_chooses_the_form() {
        let Some(cuda) = open() else { return };
        for key_dim in [16, 32, 64, 128] {
            for (rows, sequences, expected) in
                [(1, 1, 1), (4, 1, 1), (95, 1, 1), (96, 1, 2), (256, 64, 1), (1024, 4, 2)]
            {
                let (key_heads, value_heads, value_dim) = (2, 6, 48);
                let columns = 2 * key_heads * key_dim + value_heads * value_dim;
                let qkv = f32s(&cuda, &[rows, columns]);
                let ba = f32s(&cuda, &[rows, 2 * value_heads]);
                let head_constants = f32s(&cuda, &[2, value_heads]);
                let mut state = f32s(&cuda, &[3, value_heads, key_dim, value_dim]);
                let lines = i32s(&cuda, &[sequences, 4]);
                let mut out = f32s(&cuda, &[rows, value_heads * value_dim]);
                let count = launches(&cuda, |pass| {
                    gated_delta_rule(
                        pass,
                        GatedDeltaRule {
                            qkv: &qkv,
                            ba: &ba,
                            head_constants: &head_constants,
                            state: &mut state,
                            sequences: &lines,
                            key_heads,
                            head_map: HeadMap::Divide,
                            out: &mut out,
                        },
                    )
                });
                assert_eq!(count, expected, "{key_dim} {rows}/{sequences}");
            }
        }
    }
}
