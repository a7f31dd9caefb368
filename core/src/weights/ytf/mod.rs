//! forge's own container: one file with config, tokenizer, chat template and tensors, every part
//! under a checksum. Layout byte by byte: `docs/ytf.md`.
//!
//! Opening reads the header alone, [`YtfFile::verify`] reads everything.

mod write;

#[cfg(test)]
mod tests;

pub(super) use write::temporary;
pub use write::{PlannedTensor, YtfWriter};
pub(crate) use write::{YtfLayout, sync_folder};

use super::host::{HostBytes, HostTensor};
use super::layout::{UniqueMap, check_overlaps, host_tensor, quoted, tensor_bytes};
use super::mmap::map_file;
use super::quant::StorageType;
use super::{Format, GenerationDefaults, TokenizerSource};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// First bytes of a file. The high bit and the two line ends show a transfer as text.
pub const MAGIC: [u8; 8] = *b"\x89YTF\r\n\x1a\n";
/// Version of the format that is written and read.
pub const VERSION: u32 = 1;
/// Tensors start at multiples of this many bytes: a page, and more than any copy engine asks for.
pub const ALIGNMENT: u64 = 4096;
/// Magic, version, reserved word, header length, header checksum.
const PREAMBLE_BYTES: usize = 32;

/// What a file says of itself: JSON. Fields that this version does not know are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct YtfHeader {
    /// Name of the model.
    pub name: String,
    /// Hyper-parameters.
    pub config: ModelConfig,
    /// Tokenizer.
    pub tokenizer: TokenizerSource,
    /// Jinja source of the chat template.
    #[serde(default)]
    pub chat_template: Option<String>,
    /// Text of `tokenizer_config.json`.
    #[serde(default)]
    pub tokenizer_config: Option<String>,
    /// Sampling defaults.
    #[serde(default)]
    pub generation: GenerationDefaults,
    /// Where the weights come from.
    pub provenance: Provenance,
    /// Tensors by canonical name. [`YtfWriter`] fills this in.
    #[serde(default, deserialize_with = "unique_tensors")]
    pub tensors: BTreeMap<String, YtfTensor>,
}

/// Where the weights of a file come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Name of the file or folder that was converted, without its folder.
    pub source: String,
    /// Its container.
    pub source_format: Format,
    /// Version of forge that converted it.
    pub forge_version: String,
    /// Name of the text whose activations weighted the quantisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<String>,
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct YtfTensor {
    /// Storage type, by [`StorageType::name`].
    #[serde(rename = "type", with = "storage_name")]
    pub storage: StorageType,
    /// Row-major, one to four dimensions.
    pub shape: Vec<usize>,
    /// First byte, from the start of the data (the first multiple of [`ALIGNMENT`] behind the
    /// header): a multiple of [`ALIGNMENT`] too.
    pub offset: u64,
    /// Bytes, as type and shape ask for.
    pub bytes: u64,
    /// XXH3-64 (seed 0) of the bytes; 16 hexadecimal digits in the file.
    #[serde(with = "hex")]
    pub checksum: u64,
}

/// An open file.
#[derive(Clone, Debug)]
pub struct YtfFile {
    /// File, for messages.
    pub path: PathBuf,
    /// Header.
    pub header: YtfHeader,
    /// Tensors by canonical name. Their bytes are not checked until [`YtfFile::verify`].
    pub tensors: BTreeMap<String, HostTensor>,
}

impl YtfFile {
    /// Maps `path` and checks its header; tensor data are not read.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Format`] naming the file, the field and what is wrong with it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(path, map_file(path)?)
    }

    /// As [`YtfFile::open`], of a file in memory; `path` is for messages. The bytes may start at
    /// any address.
    ///
    /// # Errors
    /// [`Error::Format`] as for [`YtfFile::open`].
    pub fn parse(path: &Path, bytes: HostBytes) -> Result<Self> {
        let json = check_preamble(path, bytes.as_slice())?;
        let header: YtfHeader = serde_json::from_slice(&bytes.as_slice()[json.clone()])
            .map_err(|e| Error::format(path, "header", e.to_string()))?;
        let mut ranges = Vec::with_capacity(header.tensors.len());
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &header.tensors {
            let range = tensor_range(path, name, tensor, json.end)?;
            let data = bytes.slice(range.clone()).ok_or_else(|| {
                let reason = format!("bytes {range:?} leave the file of {} bytes", bytes.len());
                Error::format(path, quoted(name), reason)
            })?;
            ranges.push((range, &**name));
            let shape = tensor.shape.clone();
            tensors.insert(name.clone(), host_tensor(path, name, tensor.storage, shape, data)?);
        }
        check_overlaps(path, &mut ranges)?;
        Ok(Self { path: path.to_owned(), header, tensors })
    }

    /// Reads every tensor and compares it with its checksum.
    ///
    /// # Errors
    /// [`Error::Format`] naming the first damaged tensor by name, and how many there are.
    pub fn verify(&self) -> Result<()> {
        let stated: Vec<_> = self.header.tensors.iter().zip(self.tensors.values()).collect();
        let damaged: Vec<_> = stated
            .into_par_iter()
            .filter_map(|((name, entry), tensor)| {
                let found = xxh3_64(tensor.data.as_slice());
                (found != entry.checksum).then_some((name, entry.checksum, found))
            })
            .collect();
        match damaged.first() {
            None => Ok(()),
            Some((name, stated, found)) => Err(Error::format(
                &self.path,
                quoted(name),
                format!(
                    "checksum is {found:016x}, the header says {stated:016x} ({} of {} tensors \
                     are damaged)",
                    damaged.len(),
                    self.tensors.len()
                ),
            )),
        }
    }
}

/// Checks everything before the JSON and the checksum over it; returns where the JSON lies.
fn check_preamble(path: &Path, bytes: &[u8]) -> Result<Range<usize>> {
    let fault = |field: &str, reason: String| Err(Error::format(path, field, reason));
    let Some((preamble, rest)) = bytes.split_first_chunk::<PREAMBLE_BYTES>() else {
        return fault("preamble", format!("needs {PREAMBLE_BYTES} bytes, found {}", bytes.len()));
    };
    let (magic, words) = preamble.split_at(MAGIC.len());
    if magic != MAGIC {
        return fault("magic", "is not that of a .ytf file".into());
    }
    let mut words = words.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word));
    // The version is the low half of the first word, the reserved half must be zero.
    let version = words.next().unwrap_or(0);
    if version != u64::from(VERSION) {
        return match version >> 32 {
            0 => fault("version", format!("is {version}, this forge reads {VERSION}")),
            reserved => fault("reserved", format!("is {reserved}, expected 0")),
        };
    }
    let (length, stated) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    let Some(json) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
        return fault("header length", format!("is {length}, {} bytes remain", rest.len()));
    };
    let found = xxh3_64(json);
    if found != stated {
        return fault("header checksum", format!("is {stated:016x}, the header has {found:016x}"));
    }
    Ok(PREAMBLE_BYTES..PREAMBLE_BYTES + json.len())
}

/// Checks a tensor's entry in itself; the range may still leave the file.
fn tensor_range(
    path: &Path,
    name: &str,
    tensor: &YtfTensor,
    header_end: usize,
) -> Result<Range<usize>> {
    let fault = |reason: String| Error::format(path, quoted(name), reason);
    if name.is_empty() {
        return Err(Error::format(path, "tensors", "a name is empty"));
    }
    let needed = tensor_bytes(path, name, tensor.storage, &tensor.shape)?;
    if tensor.bytes != needed as u64 {
        return Err(fault(format!(
            "{}{:?} takes {needed} bytes, the header says {}",
            tensor.storage, tensor.shape, tensor.bytes
        )));
    }
    if !tensor.offset.is_multiple_of(ALIGNMENT) {
        return Err(fault(format!("offset {} is no multiple of {ALIGNMENT}", tensor.offset)));
    }
    (header_end as u64)
        .checked_next_multiple_of(ALIGNMENT)
        .and_then(|data_start| data_start.checked_add(tensor.offset))
        .and_then(|start| usize::try_from(start).ok())
        .and_then(|start| Some(start..start.checked_add(needed)?))
        .ok_or_else(|| fault(format!("offset {} overflows", tensor.offset)))
}

fn unique_tensors<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, YtfTensor>, D::Error> {
    UniqueMap::deserialize(deserializer).map(|UniqueMap(tensors)| tensors)
}

/// Storage types by their GGUF names.
mod storage_name {
    use super::{StorageType, quoted};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(t: &StorageType, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(t.name())
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<StorageType, D::Error> {
        // Quoting changes no name that exists, and keeps the message of any other to one line.
        quoted(&String::deserialize(d)?).parse().map_err(D::Error::custom)
    }
}

/// 64 bits as 16 lower-case hexadecimal digits: always the same length, so that the writer can fill
/// them in after the tensors; and exact, which a JSON number above 2^53 is not everywhere.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{value:016x}"))
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        let text = String::deserialize(d)?;
        let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(&text, 16).ok()).flatten().ok_or_else(|| {
            D::Error::custom(format!("checksum {text:?} is not 16 hexadecimal digits"))
        })
    }
}
