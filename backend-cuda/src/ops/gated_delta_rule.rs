//! `gated_delta_rule`: checks, choice of form, geometry.

use super::paged_attention::sequence_count;
use super::{matrix, rows_columns};
use crate::pass::{Arg, Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::ops::{GatedDeltaRule, HeadMap};
use forge_core::tensor::{DType, shape_error};
use forge_core::{Error, Result};

const OP: &str = "gated_delta_rule";

/// State columns of a warp of the recurrent kernel.
const RECURRENT_COLUMNS: u32 = 8;

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
        if op.key_heads == 0 || value_heads % op.key_heads != 0 {
            let expected = format!("a multiple of {} heads", op.key_heads);
            return Err(shape_error(OP, "state", expected, value_heads));
        }
        let (rows, values) = rows_columns(OP, op.out)?;
        let columns = 2 * op.key_heads * key_dim + value_heads * value_dim;
        matrix(OP, "out", op.out, rows, index32(OP, "values", value_heads * value_dim)?)?;
        matrix(OP, "qkv", op.qkv, rows, index32(OP, "columns", columns)?)?;
        matrix(OP, "ba", op.ba, rows, index32(OP, "heads", 2 * value_heads)?)?;
        debug_assert_eq!(values as usize, value_heads * value_dim);
        op.head_constants.expect(OP, "head_constants", DType::F32, &[2, value_heads])?;
        if !op.head_constants.is_contiguous() {
            let got = format!("{:?}", op.head_constants);
            return Err(shape_error(OP, "head_constants", "no gaps", got));
        }
        if value_dim % 8 != 0 || op.state.offset % 4 != 0 || op.state.row_stride % 4 != 0 {
            let reason = format!("value heads of {value_dim}, state {:?}", op.state);
            return Err(Error::unsupported(OP, reason));
        }
        Ok(Self {
            rows,
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
    recurrent(pass, &op, &geometry)
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
    let [narrow, wide] = match geometry.key_dim {
        16 => KERNELS[0],
        32 => KERNELS[1],
        64 => KERNELS[2],
        128 => KERNELS[3],
        other => {
            let reason = format!("key heads of {other}; 16, 32, 64 and 128 are there");
            return Err(Error::unsupported(OP, reason));
        }
    };
    let (kernel, warps) = if geometry.value_dim <= 16 { (narrow, 2) } else { (wide, 4) };
    let launch = Launch::new(OP, kernel)
        .grid(
            geometry.value_dim.div_ceil(RECURRENT_COLUMNS * warps),
            geometry.value_heads,
            geometry.sequences,
        )
        .block(32 * warps)
        .overlap();
    let args: [Arg<'_>; 15] = [
        op.qkv.into(),
        (op.qkv.row_stride as u64).into(),
        op.ba.into(),
        (op.ba.row_stride as u64).into(),
        op.head_constants.into(),
        (&*op.state).into(),
        (op.state.row_stride as u64).into(),
        op.sequences.into(),
        (&*op.out).into(),
        (op.out.row_stride as u64).into(),
        geometry.rows.into(),
        geometry.key_heads.into(),
        geometry.value_heads.into(),
        geometry.value_dim.into(),
        u32::from(op.head_map == HeadMap::Modulo).into(),
    ];
    pass.launch(launch, &args)
}
