//! Where the golden data lies, and how to read it.

use forge_core::tokenizer::Tokenizer;
use forge_core::weights::Checkpoint;
use forge_core::weights::mmap::map_file;
use forge_core::weights::safetensors::{RawTensor, parse_raw};
use forge_core::{Result, TokenId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file or folder of the shared material beside the repository. `None` (and a line that says so)
/// if it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let full = root().join("../shared").join(path);
    if full.exists() {
        return Some(full);
    }
    println!("skipped: ../shared/{path} is absent");
    None
}

/// A file of the repository.
pub fn own(path: &str) -> PathBuf {
    root().join(path)
}

/// The model that the binary embeds: forge-tiny in 8 bits.
///
/// # Panics
/// If it cannot be opened: it is part of the repository.
pub fn embedded() -> Checkpoint {
    Checkpoint::open(own("server/assets/forge-tiny.ytf")).unwrap()
}

/// The tokenizer of a checkpoint.
///
/// # Panics
/// If it cannot be built.
pub fn tokenizer(checkpoint: &Checkpoint) -> Tokenizer {
    let config = checkpoint.tokenizer_config.as_deref();
    Tokenizer::from_source(&checkpoint.tokenizer, config).unwrap()
}

/// A JSON file.
///
/// # Panics
/// If it is absent or malformed.
pub fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The entries of a JSON list.
///
/// # Panics
/// If it is none.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("not a list: {value}"))
}

/// A JSON string.
///
/// # Panics
/// If it is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}"))
}

/// A JSON list of token ids.
///
/// # Panics
/// If it is none.
pub fn token_ids(value: &Value) -> Vec<TokenId> {
    list(value).iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

/// A JSON list of numbers.
///
/// # Panics
/// If it is none.
pub fn numbers(value: &Value) -> Vec<f32> {
    list(value).iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

/// A model fixture: from the repository, else from the shared material.
pub fn model(name: &str) -> Option<PathBuf> {
    let own = root().join("tests/fixtures").join(name);
    if own.exists() { Some(own) } else { shared(&format!("reference/fixtures/{name}")) }
}

/// All model fixtures.
pub const MODELS: [&str; 5] =
    ["hybrid-dense", "hybrid-dense-tied", "hybrid-moe", "qwen3-dense", "llama-dense"];

/// A file of golden tensors.
pub struct Golden {
    tensors: BTreeMap<String, RawTensor>,
}

impl Golden {
    /// Reads a safetensors file.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { tensors: parse_raw(path, map_file(path)?)? })
    }

    /// True if the tensor is there.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Values of an f32 tensor.
    ///
    /// # Panics
    /// If it is absent: a test cannot go on.
    pub fn floats(&self, name: &str) -> Vec<f32> {
        let tensor = self.tensors.get(name).and_then(RawTensor::to_f32s);
        tensor.unwrap_or_else(|| panic!("golden {name} is missing"))
    }

    /// Values of an i32 tensor.
    ///
    /// # Panics
    /// If it is absent.
    pub fn ints(&self, name: &str) -> Vec<i32> {
        let tensor = self.tensors.get(name).and_then(RawTensor::to_i64s);
        let values = tensor.unwrap_or_else(|| panic!("golden {name} is missing"));
        values.into_iter().map(|v| v as i32).collect()
    }
}

/// Fails with the place of the largest difference.
///
/// # Panics
/// If any pair differs by more than `tolerance` or is not finite.
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    let difference = |(a, b): (&f32, &f32)| {
        let d = (a - b).abs();
        if d.is_nan() { f32::INFINITY } else { d }
    };
    let (at, worst) = got
        .iter()
        .zip(expected)
        .map(difference)
        .enumerate()
        .fold((0, 0.0), |best, now| if now.1 > best.1 { now } else { best });
    println!("{what}: largest difference {worst:.1e} of {tolerance:.0e}");
    assert!(
        worst <= tolerance,
        "{what}: value {at} is {} instead of {}, off by {worst} > {tolerance}",
        got[at],
        expected[at],
    );
}
