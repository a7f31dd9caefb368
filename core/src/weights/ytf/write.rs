//! Writing a `.ytf`: one pass over the tensors, then the header with their checksums.

use super::{ALIGNMENT, MAGIC, PREAMBLE_BYTES, VERSION, YtfHeader, YtfTensor};
use crate::error::{Error, Result};
use crate::weights::layout::{quoted, tensor_bytes};
use crate::weights::quant::StorageType;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::xxh3_64;

/// Name, type and shape of a tensor that will be written.
pub type PlannedTensor = (String, StorageType, Vec<usize>);

/// Writes a file beside its target and renames it when it is complete: the target is the old file
/// or the whole new one, never a part. Dropped before [`YtfWriter::finish`], it leaves nothing.
#[derive(Debug)]
pub struct YtfWriter {
    path: PathBuf,
    folder: PathBuf,
    file: NamedTempFile,
    layout: YtfLayout,
    /// Names in the order of the plan, which is the order in the file.
    order: Vec<String>,
    written: usize,
    /// Bytes written so far.
    position: u64,
}

/// Where everything of a file lies, known before a tensor is written. Only the checksums are still
/// to come, and their length is fixed.
#[derive(Debug)]
pub(crate) struct YtfLayout {
    path: PathBuf,
    header: YtfHeader,
    json_bytes: usize,
}

impl YtfLayout {
    /// Lays out the tensors of the plan in its order. `header.tensors` is replaced by the plan.
    ///
    /// # Errors
    /// [`Error::Format`] if a planned tensor has an impossible shape or a name that is empty or
    /// taken, or if the header does not survive being read back (a float that is not finite).
    pub(crate) fn new(path: &Path, mut header: YtfHeader, plan: &[PlannedTensor]) -> Result<Self> {
        lay_out(path, &mut header, plan)?;
        let json = to_json(path, &header)?;
        let read_back: YtfHeader = serde_json::from_slice(&json)
            .map_err(|e| Error::format(path, "header", format!("cannot be written: {e}")))?;
        if read_back != header {
            return Err(Error::format(path, "header", "holds a value that JSON does not keep"));
        }
        Ok(Self { path: path.to_owned(), header, json_bytes: json.len() })
    }

    /// First byte of the data.
    fn data_start(&self) -> u64 {
        ((PREAMBLE_BYTES + self.json_bytes) as u64).next_multiple_of(ALIGNMENT)
    }

    /// First byte of a tensor in the file, its bytes, and the place of its checksum.
    pub(crate) fn tensor(&mut self, name: &str) -> Option<(u64, u64, &mut u64)> {
        let data_start = self.data_start();
        let entry = self.header.tensors.get_mut(name)?;
        Some((data_start + entry.offset, entry.bytes, &mut entry.checksum))
    }

    /// Preamble and header, which fill the file from its start.
    ///
    /// # Errors
    /// [`Error::Format`] if the header changed its length.
    pub(crate) fn head(&self) -> Result<Vec<u8>> {
        let json = to_json(&self.path, &self.header)?;
        if json.len() != self.json_bytes {
            return Err(Error::format(&self.path, "header", "changed its length"));
        }
        Ok([
            &MAGIC[..],
            &VERSION.to_le_bytes(),
            &0u32.to_le_bytes(),
            &(json.len() as u64).to_le_bytes(),
            &xxh3_64(&json).to_le_bytes(),
            &json,
        ]
        .concat())
    }
}

impl YtfWriter {
    /// Starts the file `path`. `header.tensors` is replaced by the plan.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be written to, [`Error::Format`] if a planned tensor has
    /// an impossible shape or a name that is empty or taken, or if the header does not survive
    /// being read back (a float that is not finite).
    pub fn create(path: &Path, header: YtfHeader, plan: &[PlannedTensor]) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::format(path, "file", "is a folder"));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let order = plan.iter().map(|(name, _, _)| name.clone()).collect();
        let layout = YtfLayout::new(path, header, plan)?;
        let file = temporary(path, &folder).map_err(|e| Error::io(&folder, e))?;
        let data_start = layout.data_start();
        let path = path.to_owned();
        let mut writer = Self { path, folder, file, layout, order, written: 0, position: 0 };
        // The space of the header; `finish` fills it when the checksums are known.
        writer.pad_to(data_start)?;
        Ok(writer)
    }

    /// Writes the next tensor of the plan.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the plan has another tensor here or `data` has the wrong length,
    /// [`Error::Io`] if writing fails.
    pub fn write_tensor(&mut self, name: &str, data: &[u8]) -> Result<()> {
        let fault = |reason: String| Error::invalid(quoted(name), reason);
        let planned = self.order.get(self.written).map(String::as_str);
        if planned != Some(name) {
            return Err(fault(format!("the next tensor of the plan is {planned:?}")));
        }
        let entry = self.layout.tensor(name);
        let (start, bytes, checksum) = entry.ok_or_else(|| fault("is not in the plan".into()))?;
        if bytes != data.len() as u64 {
            return Err(fault(format!("has {} bytes, planned are {bytes}", data.len())));
        }
        *checksum = xxh3_64(data);
        self.pad_to(start)?;
        self.file.write_all(data).map_err(|e| Error::io(self.file.path(), e))?;
        self.position += data.len() as u64;
        self.written += 1;
        Ok(())
    }

    /// Writes the header, flushes everything to the disk and renames the file to its target.
    ///
    /// # Errors
    /// [`Error::Invalid`] if tensors of the plan were not written, [`Error::Io`] if the system
    /// fails; the target is untouched then.
    pub fn finish(self) -> Result<()> {
        if let Some(missing) = self.order.get(self.written) {
            let missing = quoted(missing);
            return Err(Error::invalid(missing, "is in the plan and was not written"));
        }
        let head = self.layout.head()?;
        let Self { path, folder, mut file, .. } = self;
        let write = |file: &mut NamedTempFile| {
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&head)?;
            // The data must be on the disk before the name points to them.
            file.as_file().sync_all()
        };
        write(&mut file).map_err(|e| Error::io(file.path(), e))?;
        file.persist(&path).map_err(|e| Error::io(&path, e.error))?;
        sync_folder(&folder).map_err(|e| Error::io(&folder, e))
    }

    /// Writes zeros up to byte `end` of the file.
    fn pad_to(&mut self, end: u64) -> Result<()> {
        let gap = end.saturating_sub(self.position);
        io::copy(&mut io::Read::take(io::repeat(0), gap), &mut self.file)
            .map_err(|e| Error::io(self.file.path(), e))?;
        self.position += gap;
        Ok(())
    }
}

/// Fills `header.tensors` from the plan, one aligned tensor after the other.
fn lay_out(path: &Path, header: &mut YtfHeader, plan: &[PlannedTensor]) -> Result<()> {
    header.tensors.clear();
    let mut end = 0u64;
    for (name, storage, shape) in plan {
        let fault = |reason: &str| Error::format(path, quoted(name), reason);
        let bytes = tensor_bytes(path, name, *storage, shape)? as u64;
        let offset = end.checked_next_multiple_of(ALIGNMENT);
        let offset = offset.ok_or_else(|| fault("ends behind 2^64 bytes"))?;
        end = offset.checked_add(bytes).ok_or_else(|| fault("ends behind 2^64 bytes"))?;
        let tensor =
            YtfTensor { storage: *storage, shape: shape.clone(), offset, bytes, checksum: 0 };
        if name.is_empty() || header.tensors.insert(name.clone(), tensor).is_some() {
            return Err(fault("name is empty or planned twice"));
        }
    }
    Ok(())
}

fn to_json(path: &Path, header: &YtfHeader) -> Result<Vec<u8>> {
    serde_json::to_vec(header).map_err(|e| Error::format(path, "header", e.to_string()))
}

/// A hidden file beside the target, with the permissions that a plain new file would get.
pub(in crate::weights) fn temporary(path: &Path, folder: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Makes the rename last: on Unix the name is part of the folder's data.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}
