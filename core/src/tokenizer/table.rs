//! What each id decodes to, as bytes: one arena for the whole vocabulary.

use crate::error::{Error, Result};
use crate::ids::TokenId;

/// Largest accepted id. Real vocabularies end near 260 000; the bound keeps one bad id in a file
/// from asking for gigabytes.
pub(super) const MAX_ID: u32 = (1 << 22) - 1;

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No token: padding of the embedding, or a gap in the file.
    Hole,
    /// Text or a fragment of it.
    Text,
    /// A control token: never produced from plain text, left out of what people read.
    Special,
}

/// Bytes and kind of every id.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Spaces that decoding removes from the very start of a text (SentencePiece's dummy prefix).
    pub(super) leading_spaces_removed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    end: usize,
    kind: Kind,
}

impl TokenTable {
    /// An empty table of `len` holes.
    pub(super) fn with_holes(len: usize) -> Self {
        let entries = vec![Entry { start: 0, end: 0, kind: Kind::Hole }; len];
        Self { entries, ..Self::default() }
    }

    /// Sets what `id` decodes to; the table grows as needed.
    ///
    /// # Errors
    /// [`Error::Format`] for an id above [`MAX_ID`]; `file` and `field` name the place.
    pub(super) fn set(
        &mut self,
        id: u32,
        bytes: &[u8],
        kind: Kind,
        file: &str,
        field: &str,
    ) -> Result<()> {
        if id > MAX_ID {
            return Err(Error::format(file, field, format!("token id {id} is above {MAX_ID}")));
        }
        let index = id as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry { start: 0, end: 0, kind: Kind::Hole });
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.entries[index] = Entry { start, end: self.bytes.len(), kind };
        Ok(())
    }

    /// Ids in the table, holes included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Kind of `id`; an id beyond the table is a hole.
    pub(super) fn kind(&self, id: TokenId) -> Kind {
        self.entries.get(id.index()).map_or(Kind::Hole, |entry| entry.kind)
    }

    /// Bytes of `id`, `None` for a hole.
    pub(super) fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        let entry = self.entries.get(id.index())?;
        match entry.kind {
            Kind::Hole => None,
            Kind::Text | Kind::Special => self.bytes.get(entry.start..entry.end),
        }
    }
}

/// How a vocabulary spells bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's printable alphabet: one character for each byte.
    ByteLevel,
    /// SentencePiece: this character stands for a space, `<0xNN>` for a byte.
    Pieces(char),
}

impl Spelling {
    /// The bytes that `token` decodes to.
    pub(super) fn decode(self, token: &str) -> Vec<u8> {
        match self {
            // A token with a character outside the alphabet is literal text.
            Self::ByteLevel => token
                .chars()
                .map(byte_of)
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| token.as_bytes().to_vec()),
            Self::Pieces(space) => match byte_piece(token) {
                Some(byte) => vec![byte],
                None => token.replace(space, " ").into_bytes(),
            },
        }
    }
}

/// The byte that `c` stands for in GPT-2's alphabet: printable Latin-1 stands for itself, the
/// other 68 bytes are numbered from U+0100 in ascending order.
fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => u8::try_from(code).ok(),
        code @ 0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        code @ 0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The byte of a SentencePiece byte token, `<0x0A>`.
pub(super) fn byte_piece(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}
