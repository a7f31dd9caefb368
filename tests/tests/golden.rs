//! Whole models of every backend present against stored golden data.

macro_rules! golden_tests {
    ($backend:ident, $precision:ident) => {
        mod $backend {
            use forge_tests::{backends, golden, tolerance};

            macro_rules! case {
                ($name:ident) => {
                    #[test]
                    fn $name() {
                        if backends::$backend().is_some() {
                            let open = || backends::$backend().unwrap();
                            golden::$name(open, &tolerance::$precision);
                        }
                    }
                };
            }
            case!(logits_match_at_every_position_for_every_chunking);
            case!(padded_passes_equal_exact_ones);
            case!(hidden_states_match_after_every_layer);
            case!(states_match_after_the_prompt_and_after_generated_tokens);
            case!(keys_and_values_match);
            case!(the_mtp_block_matches_at_every_position_and_chained);
            case!(the_engine_continues_greedily_as_recorded_alone_and_in_a_batch);
            case!(a_ragged_batch_equals_each_alone);
            case!(quantised_files_match_their_dequantised_goldens);
        }
    };
}

golden_tests!(cpu, REFERENCE);
#[cfg(feature = "cuda")]
golden_tests!(cuda, CUDA);
#[cfg(feature = "wgpu")]
golden_tests!(wgpu, WGPU);
