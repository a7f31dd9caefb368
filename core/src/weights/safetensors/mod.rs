//! Hugging Face folders: one or many safetensors shards.
//!
//! The `safetensors` crate reads the header and checks that the tensors follow each other without
//! gap or overlap, that shape, type and byte range agree, and that the last one ends the file. What
//! it lets pass is checked here: equal names, and ranges that leave the file by overflow.

use super::host::{HostBytes, HostTensor};
use super::layout::{UniqueMap, host_tensor, quoted};
use super::mmap::map_file;
use super::quant::StorageType;
use crate::error::{Error, Result};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Tensors of the vision tower, which forge does not run: their types and shapes are not looked at.
const VISION_PREFIX: &str = "model.visual.";
/// Bytes of the header length at the start of a file.
const LENGTH_BYTES: usize = 8;

/// Tensors of a folder.
#[derive(Clone, Debug)]
pub struct SafetensorsFolder {
    /// The folder.
    pub path: PathBuf,
    /// Tensors by the name in the files, without those of the vision tower.
    pub tensors: BTreeMap<String, HostTensor>,
}

impl SafetensorsFolder {
    /// Maps and reads the files of `dir`: `model.safetensors`, else the shards that
    /// `model.safetensors.index.json` names, else every `*.safetensors`.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Format`] naming the file: none there, a shard missing, a tensor
    /// not in the shard that the index says or in two shards, a type that is not F32, F16 or BF16,
    /// anything malformed.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let (single, index) =
            (dir.join("model.safetensors"), dir.join("model.safetensors.index.json"));
        let tensors = if single.exists() {
            parse(&single, map_file(&single)?)?
        } else if index.exists() {
            open_indexed(dir, &index)?
        } else {
            open_shards(dir, &files_of(dir)?)?.tensors
        };
        Ok(Self { path: dir.to_owned(), tensors })
    }
}

/// A tensor of any type, as [`parse_raw`] finds it.
#[derive(Clone, Debug)]
pub struct RawTensor {
    /// Type as the file spells it: `F32`, `BF16`, `I32`, `I64`, …
    pub dtype: String,
    /// Row-major; empty for a scalar.
    pub shape: Vec<usize>,
    /// Bytes, little-endian.
    pub data: HostBytes,
}

impl RawTensor {
    /// Values of an `F32` tensor; `None` of another type.
    pub fn to_f32s(&self) -> Option<Vec<f32>> {
        (self.dtype == "F32").then(|| chunks(&self.data, f32::from_le_bytes))
    }
    /// Values of an `I32` or `I64` tensor; `None` of another type.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        match &*self.dtype {
            "I32" => Some(chunks(&self.data, |bytes| i32::from_le_bytes(bytes).into())),
            "I64" => Some(chunks(&self.data, i64::from_le_bytes)),
            _ => None,
        }
    }
}

fn chunks<T, const N: usize>(data: &HostBytes, from: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_slice().as_chunks::<N>().0.iter().map(|&bytes| from(bytes)).collect()
}

/// Reads one file in memory; `path` is for messages. Tensors of the vision tower are left out.
///
/// # Errors
/// [`Error::Format`] naming file and tensor if anything is malformed, [`Error::Unsupported`] for a
/// type other than F32, F16 and BF16.
pub fn parse(path: &Path, bytes: HostBytes) -> Result<BTreeMap<String, HostTensor>> {
    let raw = parse_raw(path, bytes)?;
    raw.into_iter()
        .filter(|(name, _)| !name.starts_with(VISION_PREFIX))
        .map(|(name, tensor)| Ok((name.clone(), weight(path, &name, tensor)?)))
        .collect()
}

fn weight(path: &Path, name: &str, tensor: RawTensor) -> Result<HostTensor> {
    let storage = match &*tensor.dtype {
        "F32" => StorageType::F32,
        "F16" => StorageType::F16,
        "BF16" => StorageType::Bf16,
        other => {
            return Err(Error::unsupported(
                format!("{}: tensor {} of type {other}", path.display(), quoted(name)),
                "safetensors weights must be F32, F16 or BF16",
            ));
        }
    };
    host_tensor(path, name, storage, tensor.shape, tensor.data)
}

/// Reads one file in memory with tensors of any type; `path` is for messages.
///
/// # Errors
/// [`Error::Format`] naming file and tensor if anything is malformed.
pub fn parse_raw(path: &Path, bytes: HostBytes) -> Result<BTreeMap<String, RawTensor>> {
    let header = |reason: String| Error::format(path, "header", reason);
    check_header(path, bytes.as_slice())?;
    let (header_bytes, metadata) =
        SafeTensors::read_metadata(bytes.as_slice()).map_err(|e| header(e.to_string()))?;
    let data_start = LENGTH_BYTES + header_bytes;
    let mut tensors = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let range = data_start.checked_add(start).zip(data_start.checked_add(end));
        let data = range.and_then(|(start, end)| bytes.slice(start..end)).ok_or_else(|| {
            let reason = format!("data offsets {start}..{end} leave the file");
            Error::format(path, quoted(&name), reason)
        })?;
        let tensor =
            RawTensor { dtype: format!("{:?}", info.dtype), shape: info.shape.clone(), data };
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Refuses headers that the crate accepts, or adds up with an overflow.
fn check_header(path: &Path, bytes: &[u8]) -> Result<()> {
    /// The part of an entry that is checked; `__metadata__` has none.
    #[derive(Deserialize)]
    struct Entry {
        data_offsets: Option<(u64, u64)>,
    }
    let fault = |reason: String| Error::format(path, "header", reason);
    let (length, rest) = bytes
        .split_first_chunk::<LENGTH_BYTES>()
        .ok_or_else(|| fault(format!("needs 8 bytes, the file has {}", bytes.len())))?;
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| fault(format!("claims {length} bytes, {} remain", rest.len())))?;
    let data_bytes = (rest.len() - header.len()) as u64;
    let UniqueMap(entries) =
        serde_json::from_slice::<UniqueMap<Entry>>(header).map_err(|e| fault(e.to_string()))?;
    for (name, entry) in entries {
        if let Some((start, end)) = entry.data_offsets
            && (start > end || end > data_bytes)
        {
            let reason =
                format!("data offsets {start}..{end} leave the {data_bytes} bytes of data");
            return Err(Error::format(path, quoted(&name), reason));
        }
    }
    Ok(())
}

/// `model.safetensors.index.json`; its `metadata` is not needed.
#[derive(Deserialize)]
struct Index {
    weight_map: UniqueMap<String>,
}

fn open_indexed(dir: &Path, index_path: &Path) -> Result<BTreeMap<String, HostTensor>> {
    let fault = |field: String, reason: String| Error::format(index_path, field, reason);
    let text = map_file(index_path)?;
    let index: Index = serde_json::from_slice(text.as_slice())
        .map_err(|e| fault("weight_map".into(), e.to_string()))?;
    let weight_map = index.weight_map.0;
    if weight_map.is_empty() {
        return Err(fault("weight_map".into(), "names no tensor".into()));
    }
    for (name, file) in &weight_map {
        // An index from elsewhere must not reach outside its folder.
        let mut parts = Path::new(file).components();
        let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !plain || file.contains(['/', '\\']) {
            return Err(fault(quoted(name), format!("{} is no plain file name", quoted(file))));
        }
        if !dir.join(file).exists() {
            return Err(fault(quoted(name), format!("its shard {} is missing", quoted(file))));
        }
    }
    let files: BTreeSet<&String> = weight_map.values().collect();
    let paths: Vec<_> = files.into_iter().map(|file| dir.join(file)).collect();
    let shards = open_shards(dir, &paths)?;
    for (name, file) in &weight_map {
        if shards.file_of.get(name) != Some(&dir.join(file)) {
            return Err(fault(quoted(name), format!("is not in its shard {}", quoted(file))));
        }
    }
    Ok(shards.tensors)
}

/// Every `*.safetensors` of a folder, by name.
fn files_of(dir: &Path) -> Result<Vec<PathBuf>> {
    let io = |e| Error::io(dir, e);
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::format(dir, "folder", "holds no .safetensors file"));
    }
    files.sort();
    Ok(files)
}

/// Tensors of several files.
struct Shards {
    tensors: BTreeMap<String, HostTensor>,
    /// File of every tensor, those of the vision tower too.
    file_of: BTreeMap<String, PathBuf>,
}

fn open_shards(dir: &Path, paths: &[PathBuf]) -> Result<Shards> {
    let mut shards = Shards { tensors: BTreeMap::new(), file_of: BTreeMap::new() };
    for path in paths {
        for (name, tensor) in parse_raw(path, map_file(path)?)? {
            if let Some(other) = shards.file_of.insert(name.clone(), path.clone()) {
                let file =
                    |path: &Path| path.strip_prefix(dir).unwrap_or(path).display().to_string();
                let reason = format!("is in {} and in {}", file(&other), file(path));
                return Err(Error::format(dir, quoted(&name), reason));
            }
            if !name.starts_with(VISION_PREFIX) {
                let tensor = weight(path, &name, tensor)?;
                shards.tensors.insert(name, tensor);
            }
        }
    }
    Ok(shards)
}

#[cfg(test)]
mod tests;
