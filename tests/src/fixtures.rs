//! Where the golden data lies, and how to read it.

use forge_core::Result;
use forge_core::weights::mmap::map_file;
use forge_core::weights::safetensors::{RawTensor, parse_raw};
use std::collections::BTreeMap;
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
    assert!(
        worst <= tolerance,
        "{what}: value {at} is {} instead of {}, off by {worst} > {tolerance}",
        got[at],
        expected[at],
    );
}
