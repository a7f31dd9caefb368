//! Writing a GGUF file (version 3): header first, then the tensors in one pass, none of them held
//! in memory.

use super::{GgufArray, GgufValue};
use crate::error::{Error, Result};
use crate::weights::layout::{quoted, tensor_bytes};
use crate::weights::ytf::{PlannedTensor, temporary};
use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Tensors start at multiples of this many bytes, the format's default.
const ALIGNMENT: u64 = 32;
/// Bytes that go to the system at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a file beside its target and renames it when it is complete. Dropped before
/// [`GgufWriter::finish`], it leaves nothing. It is not flushed to the disk: a crash of the whole
/// machine may still lose it.
#[derive(Debug)]
pub struct GgufWriter {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    plan: Vec<Entry>,
    /// Tensors begun so far.
    begun: usize,
    /// Bytes of the tensor begun last that are still to come.
    missing: u64,
    /// Bytes written so far, and where the data start.
    position: u64,
    data_start: u64,
}

#[derive(Debug)]
struct Entry {
    name: String,
    offset: u64,
    bytes: u64,
}

/// Where everything of a file lies, and its beginning.
#[derive(Debug)]
pub(crate) struct GgufLayout {
    /// Everything before the data.
    pub(crate) head: Vec<u8>,
    plan: Vec<Entry>,
}

impl GgufLayout {
    /// Lays out the tensors of the plan in its order.
    ///
    /// # Errors
    /// [`Error::Format`] for a name that is taken, or a shape that does not fit its type.
    pub(crate) fn new(
        path: &Path,
        metadata: &[(String, GgufValue)],
        tensors: &[PlannedTensor],
    ) -> Result<Self> {
        let (head, plan) = header(path, metadata, tensors)?;
        Ok(Self { head, plan })
    }

    fn data_start(&self) -> u64 {
        (self.head.len() as u64).next_multiple_of(ALIGNMENT)
    }

    /// First byte in the file and bytes of tensor `index` of the plan.
    pub(crate) fn tensor(&self, index: usize) -> Option<(u64, u64)> {
        let entry = self.plan.get(index)?;
        Some((self.data_start() + entry.offset, entry.bytes))
    }

    /// Bytes of the file: the padding of the last tensor belongs to it.
    pub(crate) fn file_bytes(&self) -> u64 {
        let end = self.plan.last().map_or(0, |entry| entry.offset + entry.bytes);
        self.data_start() + end.next_multiple_of(ALIGNMENT)
    }
}

impl GgufWriter {
    /// Starts the file `path` and writes its header. Shapes are row-major, as
    /// [`GgufFile`](super::GgufFile) reads them.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be written to; [`Error::Format`] for a name that is
    /// taken, or a shape that does not fit its type.
    pub fn create(
        path: &Path,
        metadata: &[(String, GgufValue)],
        tensors: &[PlannedTensor],
    ) -> Result<Self> {
        if path.is_dir() {
            return Err(Error::format(path, "file", "is a folder"));
        }
        let layout = GgufLayout::new(path, metadata, tensors)?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = temporary(path, folder).map_err(|e| Error::io(folder, e))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            data_start: layout.data_start(),
            plan: layout.plan,
            begun: 0,
            missing: 0,
            position: 0,
        };
        writer.put(&layout.head)?;
        Ok(writer)
    }

    /// Begins the next tensor of the plan.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the tensor before is incomplete or the plan has another one here,
    /// [`Error::Io`].
    pub fn begin(&mut self, name: &str) -> Result<()> {
        self.check_complete()?;
        let planned = self.plan.get(self.begun);
        let Some(entry) = planned.filter(|entry| entry.name == name) else {
            let next = planned.map(|entry| &*entry.name);
            let reason = format!("the next tensor of the plan is {next:?}");
            return Err(Error::invalid(quoted(name), reason));
        };
        self.missing = entry.bytes;
        let start = self.data_start + entry.offset;
        self.begun += 1;
        self.pad_to(start)
    }

    /// Writes the next bytes of the tensor begun last.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not have so many, [`Error::Io`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(missing) = self.missing.checked_sub(bytes.len() as u64) else {
            let reason = format!("{} bytes where {} are missing", bytes.len(), self.missing);
            return Err(Error::invalid(self.current(), reason));
        };
        self.missing = missing;
        self.put(bytes)
    }

    /// Completes the file and renames it to its target.
    ///
    /// # Errors
    /// [`Error::Invalid`] if tensors of the plan are missing or incomplete, [`Error::Io`]; the
    /// target is untouched then.
    pub fn finish(mut self) -> Result<()> {
        self.check_complete()?;
        if let Some(entry) = self.plan.get(self.begun) {
            let reason = "is in the plan and was not written";
            return Err(Error::invalid(quoted(&entry.name), reason));
        }
        // Readers of the format want the padding of the last tensor too.
        self.pad_to(self.position.next_multiple_of(ALIGNMENT))?;
        let Self { path, file, .. } = self;
        let file = file.into_inner().map_err(|e| Error::io(&path, e.into_error()))?;
        file.persist(&path).map_err(|e| Error::io(&path, e.error))?;
        Ok(())
    }

    fn current(&self) -> String {
        let entry = self.begun.checked_sub(1).and_then(|index| self.plan.get(index));
        entry.map_or_else(|| "tensor".to_owned(), |entry| quoted(&entry.name))
    }

    fn check_complete(&self) -> Result<()> {
        match self.missing {
            0 => Ok(()),
            missing => Err(Error::invalid(self.current(), format!("{missing} bytes are missing"))),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn pad_to(&mut self, end: u64) -> Result<()> {
        // Gaps are shorter than the alignment.
        let gap = end.saturating_sub(self.position).min(ALIGNMENT) as usize;
        self.put(&[0; ALIGNMENT as usize][..gap])
    }
}

/// Everything before the data, and where each tensor goes.
fn header(
    path: &Path,
    metadata: &[(String, GgufValue)],
    tensors: &[PlannedTensor],
) -> Result<(Vec<u8>, Vec<Entry>)> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    put_count(&mut out, tensors.len());
    put_count(&mut out, metadata.len());
    let mut taken = BTreeSet::new();
    let unique = |fresh: bool, name: &str| match fresh && !name.is_empty() {
        true => Ok(()),
        false => Err(Error::format(path, quoted(name), "name is empty or taken")),
    };
    for (key, value) in metadata {
        unique(taken.insert(key.as_str()), key)?;
        put_string(&mut out, key);
        put_value(&mut out, value);
    }
    taken.clear();
    let mut plan = Vec::with_capacity(tensors.len());
    let mut end = 0u64;
    for (name, storage, shape) in tensors {
        unique(taken.insert(name.as_str()), name)?;
        let bytes = tensor_bytes(path, name, *storage, shape)? as u64;
        let offset = end.checked_next_multiple_of(ALIGNMENT);
        let after = offset.and_then(|offset| offset.checked_add(bytes));
        let (Some(offset), Some(after)) = (offset, after) else {
            return Err(Error::format(path, quoted(name), "ends behind 2^64 bytes"));
        };
        end = after;
        put_string(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&dim| put_count(&mut out, dim));
        out.extend(storage.gguf_id().to_le_bytes());
        out.extend(offset.to_le_bytes());
        plan.push(Entry { name: name.clone(), offset, bytes });
    }
    Ok((out, plan))
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u64).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend(text.as_bytes());
}

/// Type id and bytes of a value.
fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    let type_id: u32 = match value {
        GgufValue::U8(_) => 0,
        GgufValue::I8(_) => 1,
        GgufValue::U16(_) => 2,
        GgufValue::I16(_) => 3,
        GgufValue::U32(_) => 4,
        GgufValue::I32(_) => 5,
        GgufValue::F32(_) => 6,
        GgufValue::Bool(_) => 7,
        GgufValue::String(_) => 8,
        GgufValue::Array(_) => 9,
        GgufValue::U64(_) => 10,
        GgufValue::I64(_) => 11,
        GgufValue::F64(_) => 12,
    };
    out.extend(type_id.to_le_bytes());
    match value {
        GgufValue::U8(v) => out.extend(v.to_le_bytes()),
        GgufValue::I8(v) => out.extend(v.to_le_bytes()),
        GgufValue::U16(v) => out.extend(v.to_le_bytes()),
        GgufValue::I16(v) => out.extend(v.to_le_bytes()),
        GgufValue::U32(v) => out.extend(v.to_le_bytes()),
        GgufValue::I32(v) => out.extend(v.to_le_bytes()),
        GgufValue::U64(v) => out.extend(v.to_le_bytes()),
        GgufValue::I64(v) => out.extend(v.to_le_bytes()),
        GgufValue::F32(v) => out.extend(v.to_le_bytes()),
        GgufValue::F64(v) => out.extend(v.to_le_bytes()),
        GgufValue::Bool(v) => out.push((*v).into()),
        GgufValue::String(v) => put_string(out, v),
        GgufValue::Array(v) => put_array(out, v),
    }
}

/// Element type, count and elements.
fn put_array(out: &mut Vec<u8>, array: &GgufArray) {
    let mut start = |type_id: u32| {
        out.extend(type_id.to_le_bytes());
        put_count(out, array.len());
    };
    macro_rules! numbers {
        ($type_id:literal, $values:expr) => {{
            start($type_id);
            $values.iter().for_each(|v| out.extend(v.to_le_bytes()));
        }};
    }
    match array {
        GgufArray::U8(v) => numbers!(0, v),
        GgufArray::I8(v) => numbers!(1, v),
        GgufArray::U16(v) => numbers!(2, v),
        GgufArray::I16(v) => numbers!(3, v),
        GgufArray::U32(v) => numbers!(4, v),
        GgufArray::I32(v) => numbers!(5, v),
        GgufArray::F32(v) => numbers!(6, v),
        GgufArray::U64(v) => numbers!(10, v),
        GgufArray::I64(v) => numbers!(11, v),
        GgufArray::F64(v) => numbers!(12, v),
        GgufArray::Bool(v) => {
            start(7);
            out.extend(v.iter().map(|&b| u8::from(b)));
        }
        GgufArray::String(v) => {
            start(8);
            v.iter().for_each(|text| put_string(out, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::GgufFile;
    use super::*;
    use crate::weights::quant::StorageType;
    use std::fs;

    fn all_values() -> Vec<(String, GgufValue)> {
        use GgufValue as V;
        let values = vec![
            V::U8(1),
            V::I8(-1),
            V::U16(2),
            V::I16(-2),
            V::U32(3),
            V::I32(-3),
            V::U64(4),
            V::I64(-4),
            V::F32(0.5),
            V::F64(-0.25),
            V::Bool(true),
            V::String("é".into()),
            V::Array(GgufArray::U8(vec![1, 2])),
            V::Array(GgufArray::I32(vec![-1, 2, 3])),
            V::Array(GgufArray::F32(vec![1.5])),
            V::Array(GgufArray::Bool(vec![true, false])),
            V::Array(GgufArray::U64(vec![])),
            V::Array(GgufArray::String(vec!["a".into(), String::new()])),
        ];
        values.into_iter().enumerate().map(|(i, value)| (format!("key.{i}"), value)).collect()
    }

    fn planned(name: &str, storage: StorageType, shape: &[usize]) -> PlannedTensor {
        (name.to_owned(), storage, shape.to_vec())
    }

    #[test]
    fn the_reader_gets_back_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let plan =
            [planned("a", StorageType::F32, &[3]), planned("b", StorageType::Q8_0, &[2, 3, 32])];
        let mut writer = GgufWriter::create(&path, &all_values(), &plan).unwrap();
        let a: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let b: Vec<u8> = (0..6 * 34u32).map(|i| i as u8).collect();
        writer.begin("a").unwrap();
        writer.write(&a[..5]).unwrap();
        writer.write(&a[5..]).unwrap();
        writer.begin("b").unwrap();
        writer.write(&b).unwrap();
        assert!(!path.exists());
        writer.finish().unwrap();
        let file = GgufFile::open(&path).unwrap();
        assert_eq!(file.metadata, all_values().into_iter().collect());
        assert_eq!(file.tensors["a"].data.as_slice(), a);
        assert_eq!(file.tensors["b"].data.as_slice(), b);
        assert_eq!(file.tensors["b"].shape, [2, 3, 32]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_breaks_its_plan_never_appears() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let plan = [planned("a", StorageType::F32, &[2]), planned("b", StorageType::F32, &[1])];
        let message = |result: Result<()>| result.unwrap_err().to_string();
        let mut writer = GgufWriter::create(&path, &[], &plan).unwrap();
        assert!(message(writer.begin("b")).contains("the next tensor of the plan is Some(\"a\")"));
        writer.begin("a").unwrap();
        writer.write(&[0; 4]).unwrap();
        assert!(message(writer.write(&[0; 5])).contains("5 bytes where 4 are missing"));
        assert!(message(writer.begin("b")).contains("4 bytes are missing"));
        writer.write(&[0; 4]).unwrap();
        assert!(message(writer.finish()).contains("was not written"));
        let twice = [plan[0].clone(), plan[0].clone()];
        assert!(GgufWriter::create(&path, &[], &twice).is_err());
        let odd = [planned("a", StorageType::Q8_0, &[31])];
        assert!(GgufWriter::create(&path, &[], &odd).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
