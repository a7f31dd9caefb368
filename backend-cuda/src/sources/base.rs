//! Element-wise ops, norms, lookups and routing.

use super::{Source, source};

pub(super) const SOURCES: &[Source] = &[
    source!("add", hot),
    source!("argmax", hot),
    source!("copy_pages"),
    source!("copy_state"),
    source!("embed"),
    source!("gated_rms_norm", hot),
    source!("gather_rows"),
    source!("moe_combine", hot),
    source!("moe_route", hot),
    source!("prepare_attention", hot),
    source!("read_bandwidth"),
    source!("rms_norm", hot),
    source!("rms_norm_heads", hot),
    source!("rope", hot),
    source!("sigmoid_mul", hot),
    source!("silu_mul", hot),
    source!("store_kv", hot),
];
