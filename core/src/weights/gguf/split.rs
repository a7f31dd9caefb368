//! Split sets: `prefix-00001-of-0000N.gguf`, each file with its own tensors, the first with the
//! metadata of all.

use super::GgufFile;
use crate::error::{Error, Result};
use crate::weights::layout::quoted;
use crate::weights::mmap::map_file;
use std::path::Path;

/// Number of a file in its set and the size of the set, by its metadata.
pub(super) struct Place {
    /// From 0.
    pub(super) number: u32,
    /// At least 2.
    pub(super) count: u32,
}

/// The place that the metadata state; `None` if the file stands alone.
pub(super) fn place(file: &GgufFile) -> Result<Option<Place>> {
    let count = file.optional_u32("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(None);
    }
    Ok(Some(Place { number: file.require_u32("split.no")?, count }))
}

/// The parts of a file name `prefix-NNNNN-of-NNNNN.gguf`.
struct SplitName<'a> {
    prefix: &'a str,
    /// From 1.
    number: u32,
    count: u32,
}

impl<'a> SplitName<'a> {
    fn of(path: &'a Path) -> Option<Self> {
        let five_digits = |text: &str| {
            let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        Some(Self { prefix, number: five_digits(number)?, count: five_digits(count)? })
    }

    /// Name of the file `number`, counted from 1.
    fn file_name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// Fails if the name says that `path` is a later file of a set.
pub(super) fn check_first_by_name(path: &Path) -> Result<()> {
    match SplitName::of(path) {
        Some(name) if name.number != 1 && name.count > 1 => Err(Error::format(
            path,
            "file",
            format!("is file {} of a split set, open {}", name.number, name.file_name(1)),
        )),
        _ => Ok(()),
    }
}

/// Adds the tensors of all the other files of the set that `first` begins.
pub(super) fn open_others(mut first: GgufFile) -> Result<GgufFile> {
    let path = first.path.clone();
    let name = SplitName::of(&path).filter(|name| name.count > 1);
    let Some(place) = place(&first)? else {
        return match name {
            Some(name) => Err(Error::format(
                &path,
                "split.count",
                format!("is missing or 1, the name says {}", name.count),
            )),
            None => Ok(first),
        };
    };
    check_place(&first, &place, 0, place.count)?;
    let Some(name) = name.filter(|name| name.count == place.count) else {
        return Err(Error::format(
            &path,
            "file",
            format!("begins a split set, its name must end in -00001-of-{:05}.gguf", place.count),
        ));
    };
    let expected_tensors = first.require_u32("split.tensors.count")?;
    for number in 1..place.count {
        let part_path = path.with_file_name(name.file_name(number + 1));
        if !part_path.exists() {
            return Err(Error::format(
                &path,
                "file",
                format!("{} of the split set is missing", name.file_name(number + 1)),
            ));
        }
        let part = GgufFile::from_bytes(&part_path, &map_file(&part_path)?)?;
        add_part(&mut first, part, number, place.count)?;
    }
    if first.tensors.len() as u64 != u64::from(expected_tensors) {
        return Err(Error::format(
            &path,
            "split.tensors.count",
            format!("is {expected_tensors}, the files hold {}", first.tensors.len()),
        ));
    }
    Ok(first)
}

fn add_part(first: &mut GgufFile, part: GgufFile, number: u32, count: u32) -> Result<()> {
    let place = place(&part)?.ok_or_else(|| {
        Error::format(&part.path, "split.count", format!("is missing or 1, expected {count}"))
    })?;
    check_place(&part, &place, number, count)?;
    for (name, tensor) in part.tensors {
        if first.tensors.contains_key(&name) {
            return Err(Error::format(
                &part.path,
                quoted(&name),
                "is in an earlier file of the split set too",
            ));
        }
        first.tensors.insert(name, tensor);
    }
    Ok(())
}

fn check_place(file: &GgufFile, place: &Place, number: u32, count: u32) -> Result<()> {
    let fault = |key, found, expected| {
        Err(Error::format(&file.path, key, format!("is {found}, expected {expected}")))
    };
    if place.number != number {
        return fault("split.no", place.number, number);
    }
    if place.count != count {
        return fault("split.count", place.count, count);
    }
    Ok(())
}
