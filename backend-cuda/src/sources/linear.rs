//! Matrix products.

use super::{Source, source};

pub(super) const SOURCES: &[Source] = &[
    source!("linear_rows_float", hot),
    source!("linear_rows_iq"),
    source!("linear_rows_k", hot),
    source!("linear_rows_q", hot),
    source!("linear_tiles_float", hot),
    source!("linear_tiles_iq"),
    source!("linear_tiles_k", hot),
    source!("linear_tiles_q", hot),
    source!("moe_group"),
    source!("quantize_activations", hot),
];
