//! Prefix cache, host tier and preemption on every backend present.

macro_rules! prefix_tests {
    ($backend:ident, $extent:ident) => {
        mod $backend {
            use forge_tests::{backends, prefix};

            macro_rules! case {
                ($name:ident) => {
                    #[test]
                    fn $name() {
                        if backends::$backend().is_some() {
                            let open = || backends::$backend().unwrap();
                            prefix::$name(open, prefix::Extent::$extent);
                        }
                    }
                };
            }
            case!(warm_prompts_continue_as_cold_ones);
            case!(a_batch_continues_as_each_alone);
            case!(prompts_from_host_memory_continue_as_cold_ones);
            case!(prompts_survive_a_restart);
            case!(preempted_sequences_continue_as_if_they_had_not_been);
            case!(random_schedules_lose_nothing);
        }
    };
}

prefix_tests!(cpu, Full);
#[cfg(feature = "cuda")]
prefix_tests!(cuda, Full);
#[cfg(feature = "wgpu")]
prefix_tests!(wgpu, Short);
