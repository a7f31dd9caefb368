//! The kernel files, embedded. Each list belongs to the ops that launch its kernels.

use forge_core::weights::quant::grids;
use std::sync::LazyLock;

mod base;
mod linear;
mod mix;

/// Texts of the headers in `kernels/`.
const FILES: &[(&str, &str)] = &[
    ("common.cuh", include_str!("../../../kernels/common.cuh")),
    ("gated_delta_rule.cuh", include_str!("../../../kernels/gated_delta_rule.cuh")),
    ("gated_delta_rule_chunked.cuh", include_str!("../../../kernels/gated_delta_rule_chunked.cuh")),
    ("kv_store.cuh", include_str!("../../../kernels/kv_store.cuh")),
    ("linear.cuh", include_str!("../../../kernels/linear.cuh")),
    ("linear_rows.cuh", include_str!("../../../kernels/linear_rows.cuh")),
    ("linear_tiles.cuh", include_str!("../../../kernels/linear_tiles.cuh")),
    ("ordered.cuh", include_str!("../../../kernels/ordered.cuh")),
    ("paged_attention.cuh", include_str!("../../../kernels/paged_attention.cuh")),
    ("raw_blocks.cuh", include_str!("../../../kernels/raw_blocks.cuh")),
    ("records.cuh", include_str!("../../../kernels/records.cuh")),
    ("rotary.cuh", include_str!("../../../kernels/rotary.cuh")),
    ("sequences.cuh", include_str!("../../../kernels/sequences.cuh")),
];

/// `codebooks.cuh`: the tables of the IQ formats under the names they have in forge-core.
static CODEBOOKS: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::from("#pragma once\n");
    let mut table = |kind: &str, name: &str, values: Vec<String>| {
        let (len, values) = (values.len(), values.join(","));
        text += &format!("static __device__ const {kind} {name}[{len}] = {{{values}}};\n");
    };
    let octets = |grid: &[u64]| grid.iter().map(|row| format!("{row:#x}ull")).collect();
    let quads = |grid: &[u32]| grid.iter().map(|row| format!("{row:#x}u")).collect();
    let codes = |values: &[i8]| values.iter().map(i8::to_string).collect();
    table("i8", "IQ4_NL_VALUES", codes(&grids::IQ4_NL_VALUES));
    table("i8", "MXFP4_DOUBLED_VALUES", codes(&grids::MXFP4_DOUBLED_VALUES));
    table("u8", "SIGNS", grids::SIGNS.iter().map(u8::to_string).collect());
    table("u64", "IQ2_XXS_GRID", octets(&grids::IQ2_XXS_GRID));
    table("u64", "IQ2_XS_GRID", octets(&grids::IQ2_XS_GRID));
    table("u32", "IQ3_XXS_GRID", quads(&grids::IQ3_XXS_GRID));
    text
});

/// Names and texts of everything that kernels include.
pub fn headers() -> Vec<(&'static str, &'static str)> {
    let mut all = FILES.to_vec();
    all.push(("codebooks.cuh", &CODEBOOKS));
    all
}

/// A kernel file.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// File name without extension.
    pub name: &'static str,
    /// Text.
    pub text: &'static str,
    /// On the path of every token: a register spill fails the tests.
    pub hot: bool,
}

macro_rules! source {
    ($name:literal) => {
        $crate::sources::source!($name, hot = false)
    };
    ($name:literal, hot) => {
        $crate::sources::source!($name, hot = true)
    };
    ($name:literal, hot = $hot:literal) => {
        $crate::sources::Source {
            name: $name,
            text: include_str!(concat!("../../../kernels/", $name, ".cu")),
            hot: $hot,
        }
    };
}
use source;

/// Every kernel file.
pub fn all() -> Vec<Source> {
    [base::SOURCES, linear::SOURCES, mix::SOURCES].concat()
}
