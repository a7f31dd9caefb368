//! The disk tier: snapshots in files that survive a restart. An index in memory, and one thread that
//! reads and writes, so that no stream waits for a disk.

mod file;

pub(super) use file::Saved;

use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::kv::BLOCK_TOKENS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use xxhash_rust::xxh3::Xxh3;

/// Files that wait to be written.
const QUEUE: usize = 4;

/// A snapshot by the tokens that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Key {
    salt: u64,
    position: usize,
    hash: u64,
}

impl Key {
    /// The key of a snapshot at the end of `tokens`.
    pub(super) fn of(salt: u64, tokens: &[TokenId]) -> Self {
        let mut hash = Xxh3::with_seed(salt);
        file::token_bytes(tokens).for_each(|bytes| hash.update(&bytes));
        Self { salt, position: tokens.len(), hash: hash.digest() }
    }

    fn name(&self) -> String {
        format!("{:016x}-{:016x}-{}.kv", self.hash, self.salt, self.position)
    }
}

struct Entry {
    bytes: u64,
    parent: Option<Key>,
    used: u64,
}

enum Job {
    Write(Key, Box<Saved>),
    Read(Vec<Key>),
}

enum Done {
    Written(Key, Option<Key>, Result<u64>),
    Read(Vec<(Key, Result<Saved>)>),
}

/// Snapshots on a disk.
pub(super) struct Disk {
    folder: PathBuf,
    cap: u64,
    entries: HashMap<Key, Entry>,
    positions: BTreeMap<usize, usize>,
    writing: HashSet<Key>,
    reading: bool,
    bytes: u64,
    clock: u64,
    /// Failures to read or write.
    pub(super) errors: u64,
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    worker: Option<JoinHandle<()>>,
}

impl Disk {
    /// Opens a folder, which is created if absent, and reads what it has for this `identity`; files
    /// of other models are left alone, damaged ones are removed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open(folder: &Path, identity: u64, cap: u64) -> Result<Self> {
        let folder = folder.join(format!("{identity:016x}"));
        let io = |source| Error::Io { path: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(io)?;
        let (jobs, queue) = sync_channel(QUEUE);
        let (results, done) = channel();
        let at = folder.clone();
        let worker = std::thread::Builder::new()
            .name("forge-disk".into())
            .spawn(move || work(&at, identity, &queue, |result| results.send(result).is_ok()))
            .map_err(io)?;
        let mut disk = Self {
            cap,
            entries: HashMap::new(),
            positions: BTreeMap::new(),
            writing: HashSet::new(),
            reading: false,
            bytes: 0,
            clock: 0,
            errors: 0,
            jobs: Some(jobs),
            done,
            worker: Some(worker),
            folder: folder.clone(),
        };
        for entry in std::fs::read_dir(&folder).map_err(io)? {
            disk.take_in(&entry.map_err(io)?.path(), identity);
        }
        disk.drop_orphans();
        disk.trim();
        Ok(disk)
    }

    fn take_in(&mut self, path: &Path, identity: u64) {
        let known = path.extension().is_some_and(|extension| extension == "kv");
        let read = if known { Some(file::read_key(path, identity)) } else { None };
        match read {
            Some(Ok((header, tokens))) => {
                let key = Key::of(header.salt, &tokens);
                let bytes = path.metadata().map_or(0, |metadata| metadata.len());
                self.add(key, bytes, header.parent);
            }
            Some(Err(error)) => self.discard(path, &error),
            // What a write left behind that did not come to its end.
            None => self.discard(path, &"not a finished snapshot"),
        }
    }

    fn discard(&mut self, path: &Path, why: &dyn std::fmt::Display) {
        tracing::warn!("prefix cache on disk: {}: removed: {why}", path.display());
        self.errors += 1;
        // Left there, it is refused again next time.
        let _ = std::fs::remove_file(path);
    }

    fn add(&mut self, key: Key, bytes: u64, parent: Option<Key>) {
        self.clock += 1;
        let entry = Entry { bytes, parent, used: self.clock };
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.bytes;
        } else {
            *self.positions.entry(key.position).or_insert(0) += 1;
        }
        self.bytes += bytes;
    }

    fn remove(&mut self, key: Key) {
        let Some(entry) = self.entries.remove(&key) else { return };
        self.bytes -= entry.bytes;
        if let Some(count) = self.positions.get_mut(&key.position) {
            *count -= 1;
            if *count == 0 {
                self.positions.remove(&key.position);
            }
        }
        // Left there, it is found again after a restart, which does no harm.
        let _ = std::fs::remove_file(self.folder.join(key.name()));
    }

    /// Removes snapshots whose parent is gone.
    fn drop_orphans(&mut self) {
        loop {
            let orphans: Vec<Key> = self
                .entries
                .iter()
                .filter(|(_, entry)| entry.parent.is_some_and(|p| !self.entries.contains_key(&p)))
                .map(|(key, _)| *key)
                .collect();
            if orphans.is_empty() {
                return;
            }
            orphans.into_iter().for_each(|key| self.remove(key));
        }
    }

    /// Removes what was used longest ago, those first that no other one continues.
    fn trim(&mut self) {
        while self.bytes > self.cap {
            let parents: HashSet<Key> = self.entries.values().filter_map(|e| e.parent).collect();
            let leaves = self.entries.iter().filter(|(key, _)| !parents.contains(key));
            let Some(oldest) = leaves.min_by_key(|(_, e)| e.used).map(|(key, _)| *key) else {
                return;
            };
            self.remove(oldest);
        }
    }

    /// Keys of the prefixes of `tokens` that are here, shallow ones first, up to `limit` tokens.
    fn prefixes(&self, salt: u64, tokens: &[TokenId], limit: usize) -> Vec<Key> {
        let mut hash = Xxh3::with_seed(salt);
        let mut at = 0;
        let mut found = Vec::new();
        for position in self.positions.keys().copied().take_while(|p| *p <= limit) {
            file::token_bytes(&tokens[at..position]).for_each(|bytes| hash.update(&bytes));
            at = position;
            let key = Key { salt, position, hash: hash.digest() };
            if self.entries.contains_key(&key) {
                found.push(key);
            }
        }
        found
    }

    /// The deepest snapshot that `tokens` begins with, of at most `limit` tokens: position and the
    /// bytes to read.
    pub(super) fn find(&self, salt: u64, tokens: &[TokenId], limit: usize) -> Option<(usize, u64)> {
        let deepest = self.prefixes(salt, tokens, limit.min(tokens.len())).pop()?;
        let chain = self.chain(deepest);
        let bytes = chain.iter().filter_map(|key| self.entries.get(key)).map(|entry| entry.bytes);
        Some((deepest.position, bytes.sum()))
    }

    /// A snapshot and those it continues, the first one first.
    fn chain(&self, key: Key) -> Vec<Key> {
        let mut chain = vec![key];
        let mut at = key;
        while let Some(parent) = self.entries.get(&at).and_then(|entry| entry.parent) {
            chain.push(parent);
            at = parent;
        }
        chain.reverse();
        chain
    }

    /// True if the snapshot at the end of `tokens` is here or about to be.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.entries.contains_key(key) || self.writing.contains(key)
    }

    /// What to save of a snapshot at the end of `tokens`: its parent, and the first block that the
    /// parent lacks.
    pub(super) fn parent(&self, salt: u64, tokens: &[TokenId]) -> (Option<Key>, usize) {
        let parent = self.prefixes(salt, tokens, tokens.len().saturating_sub(1)).pop();
        (parent, parent.map_or(0, |key| key.position / BLOCK_TOKENS))
    }

    /// Starts to write a snapshot; false if too many wait already.
    pub(super) fn save(&mut self, saved: Saved) -> bool {
        let key = Key::of(saved.salt, &saved.tokens);
        let Some(jobs) = &self.jobs else { return false };
        match jobs.try_send(Job::Write(key, Box::new(saved))) {
            Ok(()) => self.writing.insert(key),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Starts to read the deepest snapshot of `tokens` and those it continues; false if another one
    /// is being read, or there is none.
    pub(super) fn load(&mut self, salt: u64, tokens: &[TokenId], limit: usize) -> bool {
        let deepest = self.prefixes(salt, tokens, limit.min(tokens.len())).pop();
        let (Some(deepest), Some(jobs), false) = (deepest, &self.jobs, self.reading) else {
            return false;
        };
        let chain = self.chain(deepest);
        self.reading = jobs.try_send(Job::Read(chain.clone())).is_ok();
        if self.reading {
            self.clock += 1;
            for key in chain {
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.used = self.clock;
                }
            }
        }
        self.reading
    }

    /// True while snapshots are being read.
    pub(super) fn is_loading(&self) -> bool {
        self.reading
    }

    /// Takes in what the thread has done, and returns snapshots that it read, the first one of their
    /// chain first. With `wait`, waits for a read that is under way.
    pub(super) fn poll(&mut self, wait: bool) -> Vec<Saved> {
        loop {
            let done = if wait && self.reading {
                self.done.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                self.done.try_recv()
            };
            match done {
                Ok(Done::Written(key, parent, result)) => {
                    self.writing.remove(&key);
                    match result {
                        Ok(bytes) => {
                            self.add(key, bytes, parent);
                            self.trim();
                        }
                        Err(error) => self.failed(&error),
                    }
                }
                Ok(Done::Read(files)) => {
                    self.reading = false;
                    return self.read(files);
                }
                Err(_) => {
                    self.reading &= !wait;
                    return Vec::new();
                }
            }
        }
    }

    fn read(&mut self, files: Vec<(Key, Result<Saved>)>) -> Vec<Saved> {
        let mut chain = Vec::new();
        for (key, result) in files {
            match result {
                Ok(saved) => chain.push(saved),
                Err(error) => {
                    self.failed(&error);
                    self.remove(key);
                    self.drop_orphans();
                    break;
                }
            }
        }
        chain
    }

    fn failed(&mut self, error: &Error) {
        if self.errors == 0 {
            tracing::warn!("prefix cache on disk: {error}");
        }
        self.errors += 1;
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The thread ends when it has done what waits.
        self.jobs = None;
        if let Some(worker) = self.worker.take() {
            // A panic there has been printed; nothing is to be saved from it.
            let _ = worker.join();
        }
    }
}

fn work(folder: &Path, identity: u64, jobs: &Receiver<Job>, send: impl Fn(Done) -> bool) {
    for job in jobs {
        let done = match job {
            Job::Write(key, saved) => {
                let path = folder.join(key.name());
                Done::Written(key, saved.parent, file::write(&path, identity, &saved))
            }
            Job::Read(chain) => Done::Read(
                chain.into_iter().map(|key| (key, read(folder, identity, key))).collect(),
            ),
        };
        if !send(done) {
            // Nobody listens any more; what waits is written all the same.
            continue;
        }
    }
}

fn read(folder: &Path, identity: u64, key: Key) -> Result<Saved> {
    let path = folder.join(key.name());
    let saved = file::read(&path, identity)?;
    if Key::of(saved.salt, &saved.tokens) == key {
        return Ok(saved);
    }
    let (field, reason) = ("tokens".into(), "are not those of its name".into());
    Err(Error::Format { path, field, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::Kind;

    fn tokens(count: usize) -> Vec<TokenId> {
        (0..count as u32).map(TokenId).collect()
    }

    fn saved(disk: &Disk, count: usize) -> Saved {
        let tokens = tokens(count);
        let (parent, first_block) = disk.parent(0, &tokens);
        let kv = vec![count as u8; 64 * (count.div_ceil(BLOCK_TOKENS) - first_block)];
        Saved { salt: 0, kind: Kind::User, tokens, parent, first_block, kv, state: vec![7; 100] }
    }

    fn settle(disk: &mut Disk) {
        while !disk.writing.is_empty() {
            assert!(disk.poll(false).is_empty());
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_chain_survives_a_restart_and_another_identity_sees_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(folder.path(), 1, 1 << 20).unwrap();
        let mut all = Vec::new();
        for count in [20, 50, 90] {
            let one = saved(&disk, count);
            assert!(disk.save(one.clone()));
            assert!(disk.has(&Key::of(0, &tokens(count))));
            settle(&mut disk);
            all.push(one);
        }
        assert_eq!((all[1].first_block, all[2].first_block), (1, 3));
        drop(disk);
        let mut disk = Disk::open(folder.path(), 1, 1 << 20).unwrap();
        let prompt = tokens(200);
        assert_eq!(disk.find(0, &prompt, 199).map(|(position, _)| position), Some(90));
        assert_eq!(disk.find(0, &prompt, 60).map(|(position, _)| position), Some(50));
        assert_eq!(disk.find(5, &prompt, 199), None);
        assert!(disk.load(0, &prompt, 199) && !disk.load(0, &prompt, 199));
        assert_eq!(disk.poll(true), all);
        assert_eq!(Disk::open(folder.path(), 2, 1 << 20).unwrap().find(0, &prompt, 199), None);
    }

    #[test]
    fn damage_is_removed_with_all_that_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(folder.path(), 1, 1 << 20).unwrap();
        for count in [20, 50, 90] {
            let one = saved(&disk, count);
            assert!(disk.save(one));
            settle(&mut disk);
        }
        let path = disk.folder.join(Key::of(0, &tokens(50)).name());
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() - 60;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(disk.load(0, &tokens(200), 199));
        let chain = disk.poll(true);
        assert_eq!(chain.iter().map(|s| s.tokens.len()).collect::<Vec<_>>(), [20]);
        assert_eq!((disk.errors, disk.entries.len()), (1, 1));
        // Cut short, or never finished: gone at the next start.
        let folder_of_files = disk.folder.clone();
        drop(disk);
        let path = folder_of_files.join(Key::of(0, &tokens(20)).name());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        std::fs::write(folder_of_files.join("x.tmp"), b"half").unwrap();
        let disk = Disk::open(folder.path(), 1, 1 << 20).unwrap();
        assert_eq!((disk.errors, disk.entries.len()), (2, 0));
        assert_eq!(std::fs::read_dir(folder_of_files).unwrap().count(), 0);
    }

    #[test]
    fn the_cap_holds_and_parents_go_last() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::open(folder.path(), 1, 1300).unwrap();
        for count in [20, 50, 90] {
            let one = saved(&disk, count);
            assert!(disk.save(one));
            settle(&mut disk);
        }
        assert!(disk.bytes() <= 1300);
        assert!(disk.has(&Key::of(0, &tokens(20))) && !disk.has(&Key::of(0, &tokens(90))));
    }
}
