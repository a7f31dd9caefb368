//! Checks that the three containers share: tensor shapes, byte ranges, unique names.

use super::host::{HostBytes, HostTensor};
use super::quant::StorageType;
use crate::error::{Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;

/// Characters of a name that a message repeats.
const QUOTED_CHARS: usize = 80;

/// A name from a file, made fit for a one-line message: escaped, and cut if it is long.
pub(super) fn quoted(name: &str) -> String {
    let mut text: String = name.chars().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if name.chars().nth(QUOTED_CHARS).is_some() {
        text.push('…');
    }
    text
}

/// Bytes of a tensor of this shape.
///
/// # Errors
/// [`Error::Format`] naming the tensor if the rank is not 1 to 4, a dimension is zero, rows are no
/// whole number of blocks, or the size overflows.
pub(super) fn tensor_bytes(
    path: &Path,
    name: &str,
    storage: StorageType,
    shape: &[usize],
) -> Result<usize> {
    let fault = |reason: String| Error::format(path, quoted(name), reason);
    if shape.is_empty() || shape.len() > 4 {
        return Err(fault(format!("has {} dimensions, expected 1 to 4", shape.len())));
    }
    if shape.contains(&0) {
        return Err(fault(format!("shape {shape:?} has a dimension of zero")));
    }
    // Readers compute element counts and f32 sizes from the shape without further checks.
    let elements = shape.iter().try_fold(4usize, |all, &dim| all.checked_mul(dim));
    let bytes = elements.and_then(|_| storage.tensor_bytes(shape));
    bytes.filter(|&bytes| bytes <= isize::MAX as usize).ok_or_else(|| {
        let (values, _) = storage.block();
        fault(format!(
            "shape {shape:?} overflows, or its rows are not blocks of {values} {storage} values"
        ))
    })
}

/// A tensor whose `data` is a range of its file.
///
/// # Errors
/// As [`tensor_bytes`], and [`Error::Format`] if `data` has another length.
pub(super) fn host_tensor(
    path: &Path,
    name: &str,
    storage: StorageType,
    shape: Vec<usize>,
    data: HostBytes,
) -> Result<HostTensor> {
    let needed = tensor_bytes(path, name, storage, &shape)?;
    if needed != data.len() {
        let reason = format!("{storage}{shape:?} takes {needed} bytes, found {}", data.len());
        return Err(Error::format(path, quoted(name), reason));
    }
    HostTensor::new(name, storage, shape, data)
}

/// Fails if two of the ranges share a byte. Sorts them.
///
/// # Errors
/// [`Error::Format`] naming both tensors.
pub(super) fn check_overlaps(path: &Path, ranges: &mut [(Range<usize>, &str)]) -> Result<()> {
    ranges.sort_by_key(|(range, _)| (range.start, range.end));
    for pair in ranges.windows(2) {
        let [(before, first), (after, second)] = pair else { continue };
        if after.start < before.end {
            return Err(Error::format(
                path,
                quoted(second),
                format!("bytes {after:?} overlap {before:?} of {}", quoted(first)),
            ));
        }
    }
    Ok(())
}

/// A JSON object whose keys must differ: plain maps silently keep the last of two equal keys.
/// An error in a value names its key.
pub(super) struct UniqueMap<V>(pub(super) BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = UniqueMap<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value = map
                        .next_value()
                        .map_err(|e| A::Error::custom(format!("{}: {e}", quoted(&key))))?;
                    if entries.contains_key(&key) {
                        return Err(A::Error::custom(format!("{} appears twice", quoted(&key))));
                    }
                    entries.insert(key, value);
                }
                Ok(UniqueMap(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_messages_stay_on_one_short_line() {
        assert_eq!(quoted("blk.0\n\u{1b}[31m"), "blk.0\\n\\u{1b}[31m");
        assert_eq!(quoted(&"x".repeat(500)).chars().count(), QUOTED_CHARS + 1);
        assert_eq!(quoted(&"x".repeat(QUOTED_CHARS)).chars().count(), QUOTED_CHARS);
    }

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let check = |storage, shape: &[usize]| tensor_bytes(Path::new("f"), "t", storage, shape);
        assert_eq!(check(StorageType::Q8_0, &[3, 64]).unwrap(), 3 * 68);
        assert!(check(StorageType::F32, &[]).is_err());
        assert!(check(StorageType::F32, &[1; 5]).is_err());
        assert!(check(StorageType::F32, &[2, 0]).is_err());
        assert!(check(StorageType::Q8_0, &[3, 33]).is_err());
        assert!(check(StorageType::F32, &[1 << 32, 1 << 32]).is_err());
        assert!(check(StorageType::Q2_K, &[1 << 62]).is_err());
    }

    #[test]
    fn overlaps_are_found_in_any_order() {
        let check = |mut ranges: Vec<_>| check_overlaps(Path::new("f"), &mut ranges);
        assert!(check(vec![(8..12, "b"), (0..8, "a")]).is_ok());
        let error = check(vec![(8..12, "b"), (0..9, "a")]).unwrap_err().to_string();
        assert_eq!(error, "f: b: bytes 8..12 overlap 0..9 of a");
    }

    #[test]
    fn equal_keys_are_an_error() {
        let read = |text| serde_json::from_str::<UniqueMap<u8>>(text);
        assert_eq!(read(r#"{"a":1,"b":2}"#).map(|m| m.0.len()).unwrap(), 2);
        let twice = read(r#"{"a":1,"a":1}"#).err().unwrap().to_string();
        assert!(twice.starts_with("a appears twice"), "{twice}");
        let wrong = read(r#"{"a":-1}"#).err().unwrap().to_string();
        assert!(wrong.starts_with("a: invalid value"), "{wrong}");
    }
}
