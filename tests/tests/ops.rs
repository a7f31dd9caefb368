//! Every op of every backend present against the CPU reference. The reference against itself checks
//! the cases.

macro_rules! op_tests {
    ($backend:ident) => {
        mod $backend {
            use forge_tests::{backends, ops};

            macro_rules! case {
                ($name:ident, $run:path) => {
                    #[test]
                    fn $name() {
                        if let Some(device) = backends::$backend() {
                            $run(&device);
                        }
                    }
                };
            }
            case!(add_and_norm, ops::rows::add_and_norm);
            case!(gated_norm, ops::rows::gated_norm);
            case!(heads_and_rope, ops::rows::heads_and_rope);
            case!(silu_mul, ops::rows::silu);
            case!(look_ups, ops::rows::look_ups);
            case!(argmax, ops::rows::argmax);
            case!(copy_state, ops::rows::copy_state);
            case!(copy_pages, ops::rows::copy_pages);
            case!(linear_every_type, ops::linear::every_type);
            case!(linear_parts_and_large, ops::linear::parts_and_large);
            case!(linear_silu_mul, ops::linear::linear_silu_mul);
            case!(moe_route, ops::moe::route);
            case!(moe_experts, ops::moe::experts);
            case!(causal_conv1d, ops::delta::conv);
            case!(gated_delta_rule, ops::delta::delta_rule);
            case!(store_kv, ops::attention::store);
            case!(paged_attention, ops::attention::attention);
            case!(long_attention, ops::attention::long_attention);
        }
    };
}

#[cfg(feature = "cuda")]
#[test]
fn cuda_rows_do_not_depend_on_their_number() {
    if let Some(device) = forge_tests::backends::cuda() {
        forge_tests::ops::linear::rows_do_not_depend_on_their_number(&device);
    }
}

op_tests!(cpu);
#[cfg(feature = "cuda")]
op_tests!(cuda);
#[cfg(feature = "wgpu")]
op_tests!(wgpu);
