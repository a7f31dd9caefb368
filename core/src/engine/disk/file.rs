//! A snapshot in a file: magic, length of the header, JSON header, tokens, blocks, checksum.
//!
//! A file holds the blocks behind those of its parent, the snapshot it continues. Everything is
//! checked on reading: a file of another model, layout or version, or one that was cut or changed,
//! is an error, never a state.

use super::Key;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::prefix::Kind;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"forgeKV1";

/// Longest header that is read.
const MAX_HEADER: usize = 64 << 10;

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Hash of model, layout, device and version.
    pub(super) identity: u64,
    /// Salt of the tree.
    pub(super) salt: u64,
    /// Why it was taken.
    pub(super) kind: Kind,
    /// Tokens that led to it.
    pub(super) tokens: usize,
    /// The snapshot whose blocks come first.
    pub(super) parent: Option<Key>,
    /// Blocks of keys and values that are the parent's.
    pub(super) first_block: usize,
    /// Bytes of keys and values.
    pub(super) kv_bytes: usize,
    /// Bytes of the state.
    pub(super) state_bytes: usize,
}

/// A snapshot outside of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Saved {
    pub(in crate::engine) salt: u64,
    pub(in crate::engine) kind: Kind,
    pub(in crate::engine) tokens: Vec<TokenId>,
    pub(in crate::engine) parent: Option<Key>,
    /// Blocks of keys and values that are the parent's.
    pub(in crate::engine) first_block: usize,
    /// Blocks from there on.
    pub(in crate::engine) kv: Vec<u8>,
    /// Blocks of the state.
    pub(in crate::engine) state: Vec<u8>,
}

/// Bytes of tokens as files and hashes have them.
pub(super) fn token_bytes(tokens: &[TokenId]) -> impl Iterator<Item = [u8; 4]> {
    tokens.iter().map(|token| token.0.to_le_bytes())
}

/// A writer or reader that hashes what passes.
struct Hashing<T> {
    inner: T,
    hash: Xxh3,
}

impl<W: Write> Hashing<W> {
    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<R: Read> Hashing<R> {
    fn take(&mut self, len: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(&bytes);
        Ok(bytes)
    }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// Writes a file beside `path` and renames it when it is on the disk. Returns its bytes.
///
/// # Errors
/// [`Error::Io`]; the file beside is removed then.
pub(super) fn write(path: &Path, identity: u64, saved: &Saved) -> Result<u64> {
    let beside = path.with_extension("tmp");
    let result = write_beside(&beside, identity, saved)
        .and_then(|bytes| fs::rename(&beside, path).map(|()| bytes));
    if result.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    result.map_err(io(path))
}

fn write_beside(path: &Path, identity: u64, saved: &Saved) -> std::io::Result<u64> {
    let header = Header {
        identity,
        salt: saved.salt,
        kind: saved.kind,
        tokens: saved.tokens.len(),
        parent: saved.parent,
        first_block: saved.first_block,
        kv_bytes: saved.kv.len(),
        state_bytes: saved.state.len(),
    };
    let header = serde_json::to_vec(&header)?;
    let mut out = Hashing { inner: File::create(path)?, hash: Xxh3::new() };
    out.put(MAGIC)?;
    out.put(&(header.len() as u32).to_le_bytes())?;
    out.put(&header)?;
    let tokens: Vec<u8> = token_bytes(&saved.tokens).flatten().collect();
    out.put(&tokens)?;
    out.put(&saved.kv)?;
    out.put(&saved.state)?;
    let Hashing { mut inner, hash } = out;
    inner.write_all(&hash.digest().to_le_bytes())?;
    inner.sync_all()?;
    let fixed = MAGIC.len() + 4 + 8;
    Ok((fixed + header.len() + tokens.len() + saved.kv.len() + saved.state.len()) as u64)
}

fn open(path: &Path, identity: u64) -> Result<(Hashing<File>, Header)> {
    let format = |field: &str, reason: String| Error::Format {
        path: path.to_owned(),
        field: field.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(io(path))?;
    let length = file.metadata().map_err(io(path))?.len();
    let mut input = Hashing { inner: file, hash: Xxh3::new() };
    if input.take(MAGIC.len()).map_err(io(path))? != MAGIC {
        return Err(format("magic", "is not that of a snapshot".into()));
    }
    let size = input.take(4).map_err(io(path))?;
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    if size > MAX_HEADER {
        return Err(format("header", format!("{size} bytes")));
    }
    let text = input.take(size).map_err(io(path))?;
    let header: Header =
        serde_json::from_slice(&text).map_err(|error| format("header", error.to_string()))?;
    if header.identity != identity {
        return Err(format("identity", "another model, layout, device or version".into()));
    }
    let parts = [MAGIC.len() + 4 + 8 + size, header.kv_bytes, header.state_bytes];
    let tokens = header.tokens.checked_mul(4);
    let total =
        parts.iter().try_fold(tokens.unwrap_or(usize::MAX), |sum, part| sum.checked_add(*part));
    if total.is_none_or(|total| total as u64 != length) {
        return Err(format("length", format!("{length} bytes do not fit the header")));
    }
    Ok((input, header))
}

/// Header and tokens of a file, for the index.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that is not to be used.
pub(super) fn read_key(path: &Path, identity: u64) -> Result<(Header, Vec<TokenId>)> {
    let (mut input, header) = open(path, identity)?;
    let tokens = read_tokens(&mut input, header.tokens).map_err(io(path))?;
    Ok((header, tokens))
}

fn read_tokens(input: &mut Hashing<File>, count: usize) -> std::io::Result<Vec<TokenId>> {
    let bytes = input.take(4 * count)?;
    let ids = bytes.chunks_exact(4);
    Ok(ids.map(|id| TokenId(u32::from_le_bytes([id[0], id[1], id[2], id[3]]))).collect())
}

/// A whole file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that is not to be used.
pub(super) fn read(path: &Path, identity: u64) -> Result<Saved> {
    let (mut input, header) = open(path, identity)?;
    let Header { salt, kind, parent, first_block, .. } = header;
    let tokens = read_tokens(&mut input, header.tokens).map_err(io(path))?;
    let kv = input.take(header.kv_bytes).map_err(io(path))?;
    let state = input.take(header.state_bytes).map_err(io(path))?;
    let mut sum = [0; 8];
    input.inner.read_exact(&mut sum).map_err(io(path))?;
    if u64::from_le_bytes(sum) != input.hash.digest() {
        return Err(Error::Format {
            path: path.to_owned(),
            field: "checksum".into(),
            reason: "does not match".into(),
        });
    }
    Ok(Saved { salt, kind, tokens, parent, first_block, kv, state })
}
