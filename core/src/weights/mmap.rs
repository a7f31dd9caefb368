//! Read-only file mappings: the only unsafe of the loaders.

use super::host::HostBytes;
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// Maps all of `path` read-only. Pages are read when they are first touched, and the mapping lives
/// as long as the last [`HostBytes`] cut from it.
///
/// The file must not be truncated or rewritten in place while it is mapped: a later access would
/// end the process (`SIGBUS`) or see changed weights. Replacing it by a rename is safe, because the
/// mapping keeps the old file; [`super::ytf::YtfWriter`] does that.
///
/// # Errors
/// [`Error::Io`] if the file is missing or cannot be read, [`Error::Format`] if it is a folder,
/// empty, or not a regular file.
pub fn map_file(path: &Path) -> Result<HostBytes> {
    // Looked at before it is opened: opening a named pipe would wait for a writer.
    let metadata = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if metadata.is_dir() {
        return Err(Error::format(path, "file", "is a folder"));
    }
    if !metadata.is_file() {
        return Err(Error::format(path, "file", "is not a regular file"));
    }
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    if file.metadata().map_err(|e| Error::io(path, e))?.len() == 0 {
        return Err(Error::format(path, "file", "is empty"));
    }
    // SAFETY: the mapping is read-only and private to this process's view; whoever runs forge must
    // not truncate or overwrite a model file in use, as the documentation above says.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
    Ok(HostBytes::new(Arc::new(map)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_a_file_and_outlives_its_removal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, b"weights").unwrap();
        let bytes = map_file(&path).unwrap();
        let tail = bytes.slice(3..7).unwrap();
        drop(bytes);
        drop(folder);
        assert_eq!(tail.as_slice(), b"ghts");
    }

    #[test]
    fn refuses_what_is_no_file_with_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let folder_error = map_file(folder.path()).unwrap_err().to_string();
        assert!(folder_error.ends_with("file: is a folder"), "{folder_error}");
        let missing = map_file(&folder.path().join("none")).unwrap_err();
        assert!(matches!(missing, Error::Io { .. }), "{missing}");
        let empty = folder.path().join("empty");
        fs::write(&empty, b"").unwrap();
        let empty_error = map_file(&empty).unwrap_err().to_string();
        assert!(empty_error.ends_with("file: is empty"), "{empty_error}");
    }
}
