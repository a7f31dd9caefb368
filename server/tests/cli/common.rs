//! Runs the binary as a user does.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

/// Runs forge with `input` on standard input.
pub(crate) fn forge_with(arguments: &[&str], input: &str) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forge"))
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early does not read all of its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Outcome {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs forge, which must succeed; returns standard output.
pub(crate) fn forge(arguments: &[&str]) -> String {
    let outcome = forge_with(arguments, "");
    assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
    outcome.out
}

/// Runs forge, which must fail with one line; returns that line without its beginning.
pub(crate) fn forge_fails(arguments: &[&str]) -> String {
    let outcome = forge_with(arguments, "");
    assert_eq!(outcome.status, Some(1), "{arguments:?}: {outcome:?}");
    let lines: Vec<&str> = outcome.err.lines().filter(|line| !line.contains(" on cpu ")).collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {outcome:?}");
    lines[0].strip_prefix("error: ").unwrap().to_owned()
}

/// A file or folder of the repository's fixtures.
pub(crate) fn fixture(name: &str) -> String {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "tests", "fixtures", name].iter().collect();
    path.to_str().unwrap().to_owned()
}
