//! Recall of the embedded model on every backend present. The 2048-token cases take minutes on a
//! CPU: `cargo test -p forge-tests --test recall -- --include-ignored --nocapture`.

macro_rules! case {
    ($backend:ident, $name:ident $(, $attribute:meta)?) => {
        #[test]
        $(#[$attribute])?
        fn $name() {
            if backends::$backend().is_some() {
                recall::$name(|| backends::$backend().unwrap());
            }
        }
    };
}

macro_rules! recall_tests {
    ($backend:ident) => {
        mod $backend {
            use forge_tests::{backends, recall};

            case!($backend, recall_at_512_tokens);
            case!($backend, recall_at_2048_tokens, ignore = "minutes on a CPU");
        }
    };
}

recall_tests!(cpu);
#[cfg(feature = "cuda")]
recall_tests!(cuda);
