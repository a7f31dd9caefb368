//! The one error type of the library crates.

use std::path::PathBuf;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong below the binary. Messages are one line, lower case, and name the
/// file, field or op together with the offending value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file is malformed: truncated, inconsistent, or claims sizes that it does not hold.
    #[error("{}: {field}: {reason}", path.display())]
    Format {
        /// File.
        path: PathBuf,
        /// Field, key or tensor at fault.
        field: String,
        /// What is wrong, with the value.
        reason: String,
    },
    /// A feature, architecture, storage type or op variant that forge does not have.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why, and what is supported instead.
        reason: String,
    },
    /// A tensor that the architecture needs is absent from the checkpoint.
    #[error("{}: tensor {name} is missing", path.display())]
    MissingTensor {
        /// File or folder.
        path: PathBuf,
        /// Name as the file would spell it.
        name: String,
    },
    /// An argument of an op has the wrong shape or type.
    #[error("{op}: {tensor} has shape {got}, expected {expected}")]
    Shape {
        /// Op.
        op: &'static str,
        /// Argument.
        tensor: &'static str,
        /// Expected shape or type.
        expected: String,
        /// Shape or type found.
        got: String,
    },
    /// The device or its driver failed.
    #[error("{op}: device error: {reason}")]
    Device {
        /// Op, or the stage (`record`, `submit`, `read`).
        op: String,
        /// Driver's message.
        reason: String,
    },
    /// A memory plan does not fit.
    #[error("{what} needs {needed} bytes, {available} are available; {advice}")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
        /// What would fit.
        advice: String,
    },
    /// A request or setting that cannot be honoured.
    #[error("{field}: {reason}")]
    Invalid {
        /// Field or flag.
        field: String,
        /// What is wrong, with the value.
        reason: String,
    },
    /// A chat template failed or refused the conversation.
    #[error("chat template: {0}")]
    Template(String),
    /// Logits contain NaN, or all of them are minus infinity.
    #[error(
        "logits of position {position} are not finite ({detail}); the weights or a kernel are at fault"
    )]
    NotFinite {
        /// Position in the sequence.
        position: u32,
        /// First offending value.
        detail: String,
    },
}

impl Error {
    /// [`Error::Io`] for `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
    /// [`Error::Format`].
    pub fn format(
        path: impl Into<PathBuf>,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Format { path: path.into(), field: field.into(), reason: reason.into() }
    }
    /// [`Error::Unsupported`].
    pub fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), reason: reason.into() }
    }
    /// [`Error::Invalid`].
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }
    /// [`Error::Device`].
    pub fn device(op: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Device { op: op.into(), reason: reason.to_string() }
    }
}
