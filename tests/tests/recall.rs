//! Recall of the embedded model on every backend present but wgpu, whose software adapter would take
//! an hour.

macro_rules! recall_tests {
    ($backend:ident) => {
        mod $backend {
            use forge_tests::{backends, recall};

            macro_rules! case {
                ($name:ident) => {
                    #[test]
                    fn $name() {
                        if backends::$backend().is_some() {
                            recall::$name(|| backends::$backend().unwrap());
                        }
                    }
                };
            }
            case!(recall_at_512_tokens);
            case!(recall_at_2048_tokens);
        }
    };
}

recall_tests!(cpu);
#[cfg(feature = "cuda")]
recall_tests!(cuda);
