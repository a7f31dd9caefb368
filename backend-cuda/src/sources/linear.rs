//! Matrix products.

use super::{Source, source};

pub(super) const SOURCES: &[Source] = &[
    source!("dequantize", hot),
    source!("linear_rows_float", hot),
    source!("linear_rows_iq"),
    source!("linear_rows_k", hot),
    source!("linear_rows_q", hot),
    source!("linear_tiles", hot),
    source!("moe_group"),
    source!("quantize_activations", hot),
];
