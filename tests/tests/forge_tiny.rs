//! forge-tiny on every backend present, from its folder and as embedded.

macro_rules! case {
    ($backend:ident, $precision:ident, $name:ident) => {
        #[test]
        fn $name() {
            if backends::$backend().is_some() {
                let open = || backends::$backend().unwrap();
                forge_tiny::$name(open, &tolerance::$precision);
            }
        }
    };
}

macro_rules! forge_tiny_tests {
    ($backend:ident, $precision:ident, $($name:ident),+) => {
        mod $backend {
            use forge_tests::{backends, forge_tiny, tolerance};

            $(case!($backend, $precision, $name);)+
        }
    };
}

forge_tiny_tests!(
    cpu,
    REFERENCE,
    the_original_continues_as_recorded,
    the_original_has_the_recorded_margins,
    the_embedded_model_continues_as_recorded,
    the_embedded_model_has_nearly_the_recorded_margins
);
#[cfg(feature = "cuda")]
forge_tiny_tests!(
    cuda,
    CUDA,
    the_original_continues_as_recorded,
    the_original_has_the_recorded_margins,
    the_embedded_model_continues_as_recorded,
    the_embedded_model_has_nearly_the_recorded_margins
);
// One is enough for a software adapter: these take it a minute each.
#[cfg(feature = "wgpu")]
forge_tiny_tests!(wgpu, WGPU, the_embedded_model_continues_as_recorded);
