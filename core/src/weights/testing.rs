//! Where the tests of the readers find their files.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// Every fixture `*/model*.<extension>`.
pub(crate) fn fixtures(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(fixture("")).unwrap().map(|entry| entry.unwrap().path());
    for model in entries.filter(|path| path.is_dir()) {
        for file in fs::read_dir(model).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("model") && name.ends_with(&format!(".{extension}")) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A folder of `shared/` beside the repository; says so if it is not there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let found = ["../shared", "../../shared"]
        .into_iter()
        .map(|beside| root().join(beside).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        println!("skipped: shared/{name} is not beside the repository");
    }
    found
}
