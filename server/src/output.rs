//! What people see: text on standard output, notes on standard error.

use anyhow::Error;
use std::fmt::{Arguments, Display};
use std::io::{self, IsTerminal, Write};

/// Writes a line to standard error. That nobody reads it is no reason to stop.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes text to standard output at once.
///
/// # Errors
/// Those of the stream, a broken pipe among them.
pub(crate) fn print(text: Arguments<'_>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_fmt(text)?;
    stdout.flush()
}

/// Writes a value as JSON and a line end to standard output.
///
/// # Errors
/// Those of the stream.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(print(format_args!("{text}\n"))?)
}

/// True if the error is that of writing to a closed pipe.
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// The chain of causes on one line. A cause that the message before it repeats is left out.
pub(crate) fn one_line(error: &Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text of a reply on its way to standard output; reasoning is dimmed on a terminal.
pub(crate) struct ReplyWriter {
    styled: bool,
    dim: bool,
    ends_line: bool,
}

impl ReplyWriter {
    /// A writer for one reply.
    pub(crate) fn new() -> Self {
        Self { styled: io::stdout().is_terminal(), dim: false, ends_line: true }
    }

    /// Writes a piece.
    ///
    /// # Errors
    /// Those of the stream.
    pub(crate) fn write(&mut self, text: &str, reasoning: bool) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        if self.styled && self.dim != reasoning {
            stdout.write_all(if reasoning { b"\x1b[2m" } else { b"\x1b[0m" })?;
            self.dim = reasoning;
        }
        stdout.write_all(text.as_bytes())?;
        self.ends_line = text.ends_with('\n');
        stdout.flush()
    }

    /// Ends the line and the style.
    ///
    /// # Errors
    /// Those of the stream.
    pub(crate) fn finish(self) -> io::Result<()> {
        let reset = if self.dim { "\x1b[0m" } else { "" };
        let line_end = if self.ends_line { "" } else { "\n" };
        print(format_args!("{reset}{line_end}"))
    }
}

/// Bytes with a binary unit.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
