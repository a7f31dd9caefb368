//! forge-tiny on every backend present, from its folder and as embedded.

macro_rules! forge_tiny_tests {
    ($backend:ident, $precision:ident) => {
        mod $backend {
            use forge_tests::{backends, forge_tiny, tolerance};

            macro_rules! case {
                ($name:ident) => {
                    #[test]
                    fn $name() {
                        if backends::$backend().is_some() {
                            let open = || backends::$backend().unwrap();
                            forge_tiny::$name(open, &tolerance::$precision);
                        }
                    }
                };
            }
            case!(the_original_continues_as_recorded);
            case!(the_original_has_the_recorded_margins);
            case!(the_embedded_model_continues_as_recorded);
            case!(the_embedded_model_has_nearly_the_recorded_margins);
        }
    };
}

forge_tiny_tests!(cpu, REFERENCE);
#[cfg(feature = "cuda")]
forge_tiny_tests!(cuda, CUDA);
#[cfg(feature = "wgpu")]
forge_tiny_tests!(wgpu, WGPU);
