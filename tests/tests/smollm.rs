//! SmolLM2-135M-Instruct on every backend present. Speed:
//! `cargo test --release -p forge-tests --test smollm speed -- --ignored --nocapture`.

use forge_tests::smollm;

#[test]
fn tokens_match() {
    smollm::tokens_match();
}

#[test]
fn the_chat_template_renders_as_recorded() {
    smollm::the_chat_template_renders_as_recorded();
}

macro_rules! case {
    ($backend:ident, $precision:ident, $name:ident $(, $attribute:meta)?) => {
        #[test]
        $(#[$attribute])?
        fn $name() {
            if backends::$backend().is_some() {
                let open = || backends::$backend().unwrap();
                smollm::$name(open, &tolerance::$precision);
            }
        }
    };
}

macro_rules! smollm_tests {
    ($backend:ident, $precision:ident) => {
        mod $backend {
            use forge_tests::{backends, smollm, tolerance};

            case!($backend, $precision, margins_match_the_reference);
            case!($backend, $precision, completions_match_where_certain);
            case!($backend, $precision, the_chat_answer_matches);
            case!($backend, $precision, speed, ignore = "a measurement");
        }
    };
}

smollm_tests!(cpu, REFERENCE);
#[cfg(feature = "cuda")]
smollm_tests!(cuda, CUDA);
