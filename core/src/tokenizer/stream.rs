//! Incremental detokenisation.

use super::table::{Kind, TokenTable};
use crate::ids::TokenId;
use std::sync::Arc;

/// Turns a stream of ids into text that never breaks a character.
///
/// The deltas of [`push`](Self::push) and [`finish`](Self::finish) joined are exactly
/// [`Tokenizer::decode`](super::Tokenizer::decode) of all ids. At most three bytes are held back,
/// so each token costs time proportional to its own length.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    table: Arc<TokenTable>,
    skip_special: bool,
    /// Bytes of a character whose end has not arrived.
    pending: Vec<u8>,
    /// Leading spaces still to be removed; 0 once other text has been seen.
    spaces_to_remove: usize,
}

impl StreamDecoder {
    pub(super) fn new(table: Arc<TokenTable>, skip_special: bool) -> Self {
        let spaces_to_remove = table.leading_spaces_removed;
        Self { table, skip_special, pending: Vec::new(), spaces_to_remove }
    }

    /// Takes the next id and returns the text that is now complete, if there is any.
    ///
    /// An id without a token (a padding row of the head) becomes U+FFFD.
    pub fn push(&mut self, id: TokenId) -> Option<String> {
        let mut text = String::new();
        self.push_to(id, &mut text);
        (!text.is_empty()).then_some(text)
    }

    /// Returns what was held back, an unfinished character as U+FFFD, and starts afresh.
    pub fn finish(&mut self) -> Option<String> {
        let rest = (!self.pending.is_empty()).then(|| char::REPLACEMENT_CHARACTER.to_string());
        self.pending.clear();
        self.spaces_to_remove = self.table.leading_spaces_removed;
        rest
    }

    /// [`push`](Self::push) that appends to `text`.
    pub(super) fn push_to(&mut self, id: TokenId, text: &mut String) {
        if self.skip_special && self.table.kind(id) == Kind::Special {
            return;
        }
        let mut bytes = self.table.bytes(id).unwrap_or("\u{fffd}".as_bytes());
        while self.spaces_to_remove > 0 {
            match bytes.split_first() {
                Some((b' ', rest)) => {
                    bytes = rest;
                    self.spaces_to_remove -= 1;
                }
                Some(_) => self.spaces_to_remove = 0,
                None => break,
            }
        }
        self.pending.extend_from_slice(bytes);
        self.drain_complete(text);
    }

    /// Moves complete characters to `text`; an invalid sequence becomes U+FFFD as
    /// [`String::from_utf8_lossy`] would have it.
    fn drain_complete(&mut self, text: &mut String) {
        let mut done = 0;
        while let Some(rest) = self.pending.get(done..).filter(|rest| !rest.is_empty()) {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    done = self.pending.len();
                }
                Err(error) => {
                    let valid = rest.get(..error.valid_up_to()).unwrap_or_default();
                    text.push_str(&String::from_utf8_lossy(valid));
                    done += error.valid_up_to();
                    let Some(invalid) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    done += invalid;
                }
            }
        }
        self.pending.drain(..done);
    }
}
