//! Mixers: attention, delta rule, convolution.

use super::{Source, source};

pub(super) const SOURCES: &[Source] = &[
    source!("causal_conv1d", hot),
    source!("gated_delta_rule_prepare"),
    source!("gated_delta_rule_recurrent", hot),
    source!("gated_delta_rule_scan"),
    source!("paged_attention_decode", hot),
    source!("paged_attention_prefill", hot),
    source!("paged_attention_simple"),
];
