//! GGUF files (v2, v3, split sets). Layout: the GGUF specification; every offset, count and length
//! of the file is checked against its size before it is used.

mod lookup;
mod read;
mod split;
mod value;
mod write;

#[cfg(test)]
pub(crate) mod builder;
#[cfg(test)]
mod tests;

pub use value::{GgufArray, GgufValue};
pub(crate) use write::GgufLayout;
pub use write::GgufWriter;

use super::host::{HostBytes, HostTensor};
use super::mmap::map_file;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Metadata and tensors of a GGUF file, or of all the files of a split set.
#[derive(Clone, Debug)]
pub struct GgufFile {
    /// The file, of a split set the first.
    pub path: PathBuf,
    /// Version of the format: 2 or 3.
    pub version: u32,
    /// Metadata, of a split set that of the first file.
    pub metadata: BTreeMap<String, GgufValue>,
    /// Tensors by the name in the file. Shapes are row-major (`ne` reversed), with as many
    /// dimensions as the file states.
    pub tensors: BTreeMap<String, HostTensor>,
}

impl GgufFile {
    /// Maps and reads `path`. The first file of a split set (`…-00001-of-0000N.gguf`) brings all
    /// the others.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Format`] naming the file and what is wrong with it: a later file
    /// of a split set, a missing or foreign part, anything malformed. [`Error::Unsupported`] for a
    /// tensor whose type forge does not read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        split::check_first_by_name(path)?;
        let first = Self::from_bytes(path, &map_file(path)?)?;
        split::open_others(first)
    }

    /// Reads one whole file in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`GgufFile::open`]; a file of a split set is refused, since it lacks tensors.
    pub fn parse(path: &Path, bytes: HostBytes) -> Result<Self> {
        let file = Self::from_bytes(path, &bytes)?;
        match split::place(&file)? {
            Some(place) => Err(Error::format(
                path,
                "split.count",
                format!("is one of {} files of a split set, open the set by path", place.count),
            )),
            None => Ok(file),
        }
    }

    fn from_bytes(path: &Path, bytes: &HostBytes) -> Result<Self> {
        let read::Contents { version, metadata, tensors } = read::read(path, bytes)?;
        Ok(Self { path: path.to_owned(), version, metadata, tensors })
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        self.metadata.get(key)
    }
}
