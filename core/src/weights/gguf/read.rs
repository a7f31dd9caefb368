//! The bytes of one GGUF file: header, metadata, tensor infos.
//!
//! Nothing is allocated on the word of the file: a count or length is compared with the bytes that
//! remain before space for it is reserved.

use super::value::{GgufArray, GgufValue};
use crate::error::{Error, Result};
use crate::weights::host::{HostBytes, HostTensor};
use crate::weights::layout::{check_overlaps, host_tensor, quoted, tensor_bytes};
use crate::weights::quant::StorageType;
use std::collections::BTreeMap;
use std::path::Path;

/// Longest key or tensor name, as the GGUF specification says.
const MAX_NAME_BYTES: u64 = 65_535;
/// Least bytes of a key and its value: length, one character, type, one byte.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Least bytes of a tensor info: length, one character, rank, one dimension, type, offset.
const MIN_INFO_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// Data alignment where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u32 = 32;

/// Contents of one file.
pub(super) struct Contents {
    pub(super) version: u32,
    pub(super) metadata: BTreeMap<String, GgufValue>,
    pub(super) tensors: BTreeMap<String, HostTensor>,
}

/// What went wrong in a field, before file and field are known.
type Read<T> = std::result::Result<T, String>;

/// Reads one file, split or not.
pub(super) fn read(path: &Path, bytes: &HostBytes) -> Result<Contents> {
    let mut cursor = Cursor { bytes: bytes.as_slice(), at: 0 };
    let named = |field: &'static str| move |reason| Error::format(path, field, reason);
    if cursor.take(4).map_err(named("magic"))? != b"GGUF" {
        return Err(Error::format(path, "magic", "is not \"GGUF\""));
    }
    let version = cursor.u32().map_err(named("version"))?;
    check_version(version).map_err(named("version"))?;
    let tensor_count = cursor.u64().map_err(named("tensor count"))?;
    let key_count = cursor.u64().map_err(named("key count"))?;
    cursor.check_count(key_count, MIN_ENTRY_BYTES).map_err(named("key count"))?;
    let metadata = read_metadata(path, &mut cursor, key_count)?;
    cursor.check_count(tensor_count, MIN_INFO_BYTES).map_err(named("tensor count"))?;
    let infos = read_infos(path, &mut cursor, tensor_count)?;
    let alignment = alignment(path, &metadata)?;
    let tensors = place_tensors(path, bytes, cursor.at, alignment, infos)?;
    Ok(Contents { version, metadata, tensors })
}

fn check_version(version: u32) -> Read<()> {
    match version {
        2 | 3 => Ok(()),
        // The low half of a version written by a big-endian machine is zero.
        v if v != 0 && v & 0xffff == 0 => {
            Err("is big-endian; only little-endian files are supported".into())
        }
        v => Err(format!("is {v}, supported are 2 and 3")),
    }
}

fn read_metadata(
    path: &Path,
    cursor: &mut Cursor<'_>,
    count: u64,
) -> Result<BTreeMap<String, GgufValue>> {
    let mut metadata = BTreeMap::new();
    for index in 0..count {
        let key =
            cursor.name().map_err(|reason| Error::format(path, format!("key {index}"), reason))?;
        let value = cursor.value().map_err(|reason| Error::format(path, quoted(key), reason))?;
        if metadata.insert(key.to_owned(), value).is_some() {
            return Err(Error::format(path, quoted(key), "appears twice"));
        }
    }
    Ok(metadata)
}

/// A tensor before its bytes are looked up.
struct Info<'a> {
    name: &'a str,
    storage: StorageType,
    shape: Vec<usize>,
    /// From the start of the data.
    offset: u64,
}

fn read_infos<'a>(path: &Path, cursor: &mut Cursor<'a>, count: u64) -> Result<Vec<Info<'a>>> {
    let mut infos = Vec::new();
    for index in 0..count {
        let name = cursor
            .name()
            .map_err(|reason| Error::format(path, format!("tensor {index}"), reason))?;
        let named = |reason| Error::format(path, quoted(name), reason);
        let rank = cursor.u32().map_err(named)?;
        if !(1..=4).contains(&rank) {
            return Err(named(format!("has {rank} dimensions, expected 1 to 4")));
        }
        let mut shape = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            let dim = cursor.u64().map_err(named)?;
            shape.push(usize::try_from(dim).map_err(|_| named(format!("dimension {dim}")))?);
        }
        // GGUF lists the fastest dimension first.
        shape.reverse();
        let id = cursor.u32().map_err(named)?;
        let storage =
            StorageType::from_gguf_id(id).ok_or_else(|| unsupported_type(path, name, id))?;
        let offset = cursor.u64().map_err(named)?;
        infos.push(Info { name, storage, shape, offset });
    }
    Ok(infos)
}

fn unsupported_type(path: &Path, name: &str, id: u32) -> Error {
    // Types that exist in GGUF and that forge cannot read.
    let known = match id {
        9 => "q8_1",
        15 => "q8_k",
        19 => "iq1_s",
        21 => "iq3_s",
        22 => "iq2_s",
        24 => "i8",
        25 => "i16",
        26 => "i32",
        27 => "i64",
        28 => "f64",
        29 => "iq1_m",
        34 => "tq1_0",
        35 => "tq2_0",
        40 => "nvfp4",
        _ => "unknown",
    };
    let supported: Vec<_> = StorageType::ALL.iter().map(|t| t.name()).collect();
    Error::unsupported(
        format!("{}: tensor {} of type {known} (id {id})", path.display(), quoted(name)),
        format!("supported types are {}", supported.join(", ")),
    )
}

fn alignment(path: &Path, metadata: &BTreeMap<String, GgufValue>) -> Result<u64> {
    const KEY: &str = "general.alignment";
    let Some(value) = metadata.get(KEY) else { return Ok(DEFAULT_ALIGNMENT.into()) };
    value
        .as_u32()
        .filter(|a| a.is_power_of_two())
        .map(u64::from)
        .ok_or_else(|| Error::format(path, KEY, format!("is {value}, expected a power of two")))
}

/// Cuts the tensors out of the data, which starts at the first aligned byte after the infos.
fn place_tensors(
    path: &Path,
    bytes: &HostBytes,
    infos_end: usize,
    alignment: u64,
    infos: Vec<Info<'_>>,
) -> Result<BTreeMap<String, HostTensor>> {
    let outside = |info: &Info<'_>, needed: usize| {
        Error::format(
            path,
            quoted(info.name),
            format!("{needed} bytes at data offset {} leave the file", info.offset),
        )
    };
    let data_start = (infos_end as u64).checked_next_multiple_of(alignment);
    let mut ranges = Vec::with_capacity(infos.len());
    let mut data = Vec::with_capacity(infos.len());
    for info in &infos {
        let needed = tensor_bytes(path, info.name, info.storage, &info.shape)?;
        if !info.offset.is_multiple_of(alignment) {
            let reason = format!("data offset {} is no multiple of {alignment}", info.offset);
            return Err(Error::format(path, quoted(info.name), reason));
        }
        let range = data_start
            .and_then(|start| start.checked_add(info.offset))
            .and_then(|start| usize::try_from(start).ok())
            .and_then(|start| Some(start..start.checked_add(needed)?))
            .ok_or_else(|| outside(info, needed))?;
        data.push(bytes.slice(range.clone()).ok_or_else(|| outside(info, needed))?);
        ranges.push((range, info.name));
    }
    let mut tensors = BTreeMap::new();
    for (info, data) in infos.into_iter().zip(data) {
        let tensor = host_tensor(path, info.name, info.storage, info.shape, data)?;
        if tensors.insert(info.name.to_owned(), tensor).is_some() {
            return Err(Error::format(path, quoted(info.name), "appears twice"));
        }
    }
    check_overlaps(path, &mut ranges)?;
    Ok(tensors)
}

/// A position in the bytes of a file.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn take(&mut self, len: u64) -> Read<&'a [u8]> {
        let taken = usize::try_from(len)
            .ok()
            .and_then(|len| self.bytes.get(self.at..self.at.checked_add(len)?))
            .ok_or_else(|| {
                let remaining = self.remaining();
                format!("needs {len} bytes at byte {}, {remaining} remain", self.at)
            })?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Fails if `count` items of at least `least` bytes cannot follow.
    fn check_count(&self, count: u64, least: u64) -> Read<()> {
        if count > self.remaining() / least {
            return Err(format!("claims {count} items, {} bytes remain", self.remaining()));
        }
        Ok(())
    }

    fn array_of<const N: usize>(&mut self) -> Read<[u8; N]> {
        let bytes = self.take(N as u64)?;
        bytes.try_into().map_err(|_| format!("needs {N} bytes"))
    }

    fn u32(&mut self) -> Read<u32> {
        self.array_of().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Read<u64> {
        self.array_of().map(u64::from_le_bytes)
    }

    fn string(&mut self) -> Read<&'a str> {
        let len = self.u64()?;
        let start = self.at;
        std::str::from_utf8(self.take(len)?)
            .map_err(|e| format!("string at byte {start} is not valid UTF-8: {e}"))
    }

    /// A key or tensor name.
    fn name(&mut self) -> Read<&'a str> {
        let name = self.string()?;
        if name.is_empty() || name.len() as u64 > MAX_NAME_BYTES {
            return Err(format!("name of {} bytes, expected 1 to {MAX_NAME_BYTES}", name.len()));
        }
        Ok(name)
    }

    fn value(&mut self) -> Read<GgufValue> {
        Ok(match self.u32()? {
            0 => GgufValue::U8(self.array_of().map(u8::from_le_bytes)?),
            1 => GgufValue::I8(self.array_of().map(i8::from_le_bytes)?),
            2 => GgufValue::U16(self.array_of().map(u16::from_le_bytes)?),
            3 => GgufValue::I16(self.array_of().map(i16::from_le_bytes)?),
            4 => GgufValue::U32(self.u32()?),
            5 => GgufValue::I32(self.array_of().map(i32::from_le_bytes)?),
            6 => GgufValue::F32(self.array_of().map(f32::from_le_bytes)?),
            7 => GgufValue::Bool(bool_of(self.array_of::<1>()?[0])?),
            8 => GgufValue::String(self.string()?.to_owned()),
            9 => GgufValue::Array(self.array()?),
            10 => GgufValue::U64(self.u64()?),
            11 => GgufValue::I64(self.array_of().map(i64::from_le_bytes)?),
            12 => GgufValue::F64(self.array_of().map(f64::from_le_bytes)?),
            id => return Err(format!("has unknown value type {id}")),
        })
    }

    fn array(&mut self) -> Read<GgufArray> {
        let element = self.u32()?;
        let count = self.u64()?;
        Ok(match element {
            0 => GgufArray::U8(self.numbers(count, u8::from_le_bytes)?),
            1 => GgufArray::I8(self.numbers(count, i8::from_le_bytes)?),
            2 => GgufArray::U16(self.numbers(count, u16::from_le_bytes)?),
            3 => GgufArray::I16(self.numbers(count, i16::from_le_bytes)?),
            4 => GgufArray::U32(self.numbers(count, u32::from_le_bytes)?),
            5 => GgufArray::I32(self.numbers(count, i32::from_le_bytes)?),
            6 => GgufArray::F32(self.numbers(count, f32::from_le_bytes)?),
            7 => {
                GgufArray::Bool(self.take(count)?.iter().map(|&b| bool_of(b)).collect::<Read<_>>()?)
            }
            8 => GgufArray::String(self.strings(count)?),
            9 => return Err("is an array of arrays, which is not supported".into()),
            10 => GgufArray::U64(self.numbers(count, u64::from_le_bytes)?),
            11 => GgufArray::I64(self.numbers(count, i64::from_le_bytes)?),
            12 => GgufArray::F64(self.numbers(count, f64::from_le_bytes)?),
            id => return Err(format!("has unknown element type {id}")),
        })
    }

    fn numbers<T, const N: usize>(&mut self, count: u64, from: fn([u8; N]) -> T) -> Read<Vec<T>> {
        self.check_count(count, N as u64)?;
        let (elements, _) = self.take(count * N as u64)?.as_chunks::<N>();
        Ok(elements.iter().map(|&bytes| from(bytes)).collect())
    }

    fn strings(&mut self, count: u64) -> Read<Vec<String>> {
        // A string has a length of 8 bytes, so this reserves at most three times what remains.
        self.check_count(count, 8)?;
        let mut strings = Vec::with_capacity(count as usize);
        for index in 0..count {
            let text = self.string().map_err(|reason| format!("element {index}: {reason}"))?;
            strings.push(text.to_owned());
        }
        Ok(strings)
    }
}

fn bool_of(byte: u8) -> Read<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("holds {other}, expected a bool of 0 or 1")),
    }
}
