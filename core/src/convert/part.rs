//! The unfinished file: `.NAME.part` beside its target, with a journal of the tensors that are
//! complete. A conversion that was cut short goes on where the journal ends, after every tensor in
//! it was compared with its checksum. The part begins with zeros in place of the magic number until
//! everything is written and checked, so nothing can mistake it for a model.

use super::check::Deviation;
use crate::error::{Error, Result};
use crate::weights::ytf::sync_folder;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Bytes that are read at a time when a part is checked.
const CHUNK_BYTES: usize = 1 << 22;

/// Place of a tensor in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// First line of a journal.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Start {
    forge: String,
    /// Of everything that decides the bytes of the file.
    plan: String,
}

/// Every other line: a tensor that is written and was compared with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) tensor: String,
    pub(super) checksum: u64,
    pub(super) deviation: Deviation,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Part {
    target: PathBuf,
    path: PathBuf,
    journal_path: PathBuf,
    file: File,
    journal: File,
    /// Tensors that an earlier run has written.
    pub(super) done: Vec<Done>,
}

impl Part {
    /// Opens or creates the part of `target`. What an earlier run with the same `plan` left is kept
    /// as far as it is undamaged.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another process is writing it, [`Error::Io`].
    pub(super) fn open(target: &Path, plan: u64, places: &[Place]) -> Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = target.with_file_name(format!(".{name}.part"));
        let journal_path = target.with_file_name(format!(".{name}.journal"));
        let file = open(&path).map_err(|e| Error::io(&path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let reason = format!("{} is being written by another conversion", target.display());
                return Err(Error::invalid("destination", reason));
            }
            // A file system without locks: two conversions to one name are then the user's care.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(Error::io(&path, error)),
        }
        if !path.exists() {
            let reason = format!("{} was finished by another conversion", target.display());
            return Err(Error::invalid("destination", reason));
        }
        let journal = open(&journal_path).map_err(|e| Error::io(&journal_path, e))?;
        let target = target.to_owned();
        let mut part = Self { target, path, journal_path, file, journal, done: Vec::new() };
        let start =
            Start { forge: env!("CARGO_PKG_VERSION").to_owned(), plan: format!("{plan:016x}") };
        part.resume(&start, places).map_err(|e| Error::io(&part.journal_path, e))?;
        Ok(part)
    }

    /// Takes over the lines of the journal that are true, and removes the others.
    fn resume(&mut self, start: &Start, places: &[Place]) -> std::io::Result<()> {
        let mut lines = BufReader::new(&self.journal);
        let mut line = String::new();
        let mut valid = 0;
        let mut next = |line: &mut String| {
            line.clear();
            // A line that was cut short has no end; it does not count.
            lines.read_line(line).is_ok_and(|_| line.ends_with('\n'))
        };
        if next(&mut line) && serde_json::from_str::<Start>(&line).is_ok_and(|s| s == *start) {
            valid += line.len() as u64;
            for place in places {
                if !next(&mut line) {
                    break;
                }
                let Ok(done) = serde_json::from_str::<Done>(&line) else { break };
                let checksum = checksum(&self.file, place);
                if done.tensor != place.name || checksum.ok() != Some(done.checksum) {
                    break;
                }
                valid += line.len() as u64;
                self.done.push(done);
            }
        }
        self.journal.set_len(valid)?;
        self.journal.seek(SeekFrom::Start(valid))?;
        if valid == 0 {
            self.file.set_len(0)?;
            append(&mut self.journal, start)?;
        }
        // A head that was written just before the end must not outlive what follows it.
        let head = [0; 8];
        if self.file.metadata()?.len() >= head.len() as u64 {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&head)?;
        }
        Ok(())
    }

    /// Goes to the start of a tensor.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begin(&mut self, place: &Place) -> Result<()> {
        let seek = self.file.seek(SeekFrom::Start(place.start));
        seek.map(|_| ()).map_err(|e| Error::io(&self.path, e))
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, e))
    }

    /// Reads bytes of a tensor back.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn read(&mut self, place: &Place, from: u64, bytes: &mut [u8]) -> Result<()> {
        let mut read = || {
            self.file.seek(SeekFrom::Start(place.start + from))?;
            self.file.read_exact(bytes)
        };
        read().map_err(|e| Error::io(&self.path, e))
    }

    /// Notes that a tensor is written and checked.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn note(&mut self, done: Done) -> Result<()> {
        append(&mut self.journal, &done).map_err(|e| Error::io(&self.journal_path, e))?;
        self.done.push(done);
        Ok(())
    }

    /// Writes the head and flushes everything to the disk. `check` looks at the complete part; then
    /// it gets its name.
    ///
    /// # Errors
    /// [`Error::Io`], and those of `check`.
    pub(super) fn finish(
        mut self,
        head: &[u8],
        file_bytes: u64,
        check: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let write = |file: &mut File| {
            file.set_len(file_bytes)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(head)?;
            // The data must be on the disk before the name points to them.
            file.sync_all()
        };
        write(&mut self.file).map_err(|e| Error::io(&self.path, e))?;
        if let Err(error) = check(&self.path) {
            // It has a head by now, so it must not stay.
            self.discard();
            return Err(error);
        }
        let Self { target, path, journal_path, file, journal, .. } = self;
        drop((file, journal));
        fs::rename(&path, &target).map_err(|e| Error::io(&target, e))?;
        if let Some(folder) = target.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            sync_folder(folder).map_err(|e| Error::io(folder, e))?;
        }
        // Without its part a journal means nothing; one that stays does no harm.
        let _ = fs::remove_file(journal_path);
        Ok(())
    }

    /// Removes part and journal.
    pub(super) fn discard(self) {
        let Self { path, journal_path, file, journal, .. } = self;
        drop((file, journal));
        // The error that led here matters more than one of these.
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(journal_path);
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn append(journal: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    journal.write_all(text.as_bytes())
}

fn checksum(mut file: &File, place: &Place) -> std::io::Result<u64> {
    file.seek(SeekFrom::Start(place.start))?;
    let mut hash = Xxh3::new();
    let mut chunk = vec![0; CHUNK_BYTES.min(place.bytes as usize)];
    let mut left = place.bytes;
    while left > 0 {
        let size = (chunk.len() as u64).min(left) as usize;
        file.read_exact(&mut chunk[..size])?;
        hash.update(&chunk[..size]);
        left -= size as u64;
    }
    Ok(hash.digest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn places() -> Vec<Place> {
        let place =
            |(at, name): (u64, &str)| Place { name: name.into(), start: 64 + 8 * at, bytes: 8 };
        [(0, "a"), (1, "b"), (2, "c")].into_iter().map(place).collect()
    }

    fn write(part: &mut Part, place: &Place, byte: u8) {
        part.begin(place).unwrap();
        part.write(&[byte; 8]).unwrap();
        let checksum = xxh3_64(&[byte; 8]);
        let deviation = Deviation { relative_rms: 0.1, worst_block: 0.2 };
        part.note(Done { tensor: place.name.clone(), checksum, deviation }).unwrap();
    }

    #[test]
    fn what_was_written_is_taken_over_while_it_is_true() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("m.ytf");
        let places = places();
        let mut part = Part::open(&target, 7, &places).unwrap();
        write(&mut part, &places[0], 1);
        write(&mut part, &places[1], 2);
        let second = Part::open(&target, 7, &places).unwrap_err().to_string();
        assert!(second.contains("another conversion"), "{second}");
        drop(part);
        let journal = folder.path().join(".m.ytf.journal");
        let whole = fs::read(&journal).unwrap();
        // A line cut short, then a tensor damaged, then another plan.
        fs::write(&journal, &whole[..whole.len() - 3]).unwrap();
        assert_eq!(Part::open(&target, 7, &places).unwrap().done.len(), 1);
        fs::write(&journal, &whole).unwrap();
        assert_eq!(Part::open(&target, 7, &places).unwrap().done.len(), 2);
        let file = folder.path().join(".m.ytf.part");
        let mut bytes = fs::read(&file).unwrap();
        bytes[66] ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(Part::open(&target, 7, &places).unwrap().done.len(), 0);
        fs::write(&journal, &whole).unwrap();
        assert_eq!(Part::open(&target, 8, &places).unwrap().done.len(), 0);
        assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    }

    #[test]
    fn the_name_appears_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("m.ytf");
        let places = places();
        let mut part = Part::open(&target, 7, &places).unwrap();
        for place in &places {
            write(&mut part, place, 5);
        }
        let start = fs::read(folder.path().join(".m.ytf.part")).unwrap();
        assert_eq!(start[..8], [0; 8]);
        part.finish(b"HEAD", 96, |path| {
            assert!(!target.exists());
            assert!(fs::read(path).unwrap().starts_with(b"HEAD"));
            Ok(())
        })
        .unwrap();
        assert_eq!(fs::metadata(&target).unwrap().len(), 96);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        Part::open(&target, 7, &places).unwrap().discard();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let again = Part::open(&target, 7, &places).unwrap();
        let refused = again.finish(b"HEAD", 96, |_| Err(Error::invalid("file", "is wrong")));
        assert!(refused.is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
