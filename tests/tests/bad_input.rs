//! What a user may do wrong, on every backend present, and damaged files.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use forge_core::weights::Checkpoint;
use forge_tests::fixtures::own;
use std::fs;
use std::path::{Path, PathBuf};

macro_rules! bad_input_tests {
    ($backend:ident) => {
        mod $backend {
            use forge_tests::{backends, bad_input};

            macro_rules! case {
                ($name:ident) => {
                    #[test]
                    fn $name() {
                        if backends::$backend().is_some() {
                            bad_input::$name(|| backends::$backend().unwrap());
                        }
                    }
                };
            }
            case!(a_nan_fails_its_own_sequence_only);
            case!(a_nan_in_a_matrix_fails_every_sequence);
            case!(impossible_prompts_are_refused);
        }
    };
}

bad_input_tests!(cpu);
#[cfg(feature = "cuda")]
bad_input_tests!(cuda);
#[cfg(feature = "wgpu")]
bad_input_tests!(wgpu);

/// A model file, and what is opened to load it.
fn copies(folder: &Path) -> [(PathBuf, PathBuf); 3] {
    let fixture = own("tests/fixtures/llama-dense");
    let model = folder.join("model");
    fs::create_dir(&model).unwrap();
    for entry in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        fs::copy(fixture.join(entry), model.join(entry)).unwrap();
    }
    let gguf = folder.join("model.gguf");
    fs::copy(fixture.join("model-Q8_0.gguf"), &gguf).unwrap();
    let ytf = folder.join("model.ytf");
    fs::copy(own("server/assets/forge-tiny.ytf"), &ytf).unwrap();
    [(model.join("model.safetensors"), model), (gguf.clone(), gguf), (ytf.clone(), ytf)]
}

#[test]
fn a_truncated_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (file, opened) in copies(folder.path()) {
        Checkpoint::open(&opened).unwrap();
        let bytes = fs::read(&file).unwrap();
        for keep in [bytes.len() - 1, bytes.len() / 2, 100, 20, 5, 0] {
            fs::write(&file, &bytes[..keep]).unwrap();
            let error = Checkpoint::open(&opened).unwrap_err().to_string();
            println!("{keep} bytes: {}", error.replace(folder.path().to_str().unwrap(), ""));
            assert!(error.contains(file.to_str().unwrap()), "{keep} bytes: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nothing.gguf");
    let error = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    // A folder without config.json says what it holds.
    fs::write(folder.path().join("notes.txt"), "x").unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("notes.txt"), "{error}");
}
