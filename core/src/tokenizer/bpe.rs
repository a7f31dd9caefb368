//! A checked byte-pair model: everything that could make the model misbehave is refused here, by
//! index, before it is built.

use super::added::AddedToken;
use crate::error::{Error, Result};
use std::collections::HashMap;
use tokenizers::models::bpe::{BPE, Vocab};

/// What a file says of its byte-pair model.
#[derive(Debug, Default)]
pub(super) struct BpeSource {
    /// File for messages.
    pub(super) file: &'static str,
    /// Token texts and ids.
    pub(super) vocab: Vocab,
    /// Pairs, best first.
    pub(super) merges: Vec<(String, String)>,
    /// Token for characters that the vocabulary lacks.
    pub(super) unknown: Option<String>,
    /// Neighbouring unknown characters become one token.
    pub(super) fuse_unknown: bool,
    /// Characters that the vocabulary lacks become `<0xNN>` tokens.
    pub(super) byte_fallback: bool,
    /// A whole piece that is a token is taken at once.
    pub(super) ignore_merges: bool,
}

impl BpeSource {
    /// Checks the merges and builds the model. A merge may name one of the `added` tokens, which
    /// then is part of the model as well; otherwise no piece of text can turn into an added token.
    ///
    /// # Errors
    /// [`Error::Format`] naming the merge or token at fault.
    pub(super) fn build(mut self, added: &[AddedToken]) -> Result<BPE> {
        let added: HashMap<&str, u32> =
            added.iter().map(|token| (token.content.as_str(), token.id.0)).collect();
        let mut joined = String::new();
        for (index, (left, right)) in self.merges.iter().enumerate() {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            for token in [left, right, &joined] {
                if self.vocab.contains_key(token) {
                    continue;
                }
                let Some(&id) = added.get(token.as_str()) else {
                    let reason = format!("{token:?} is not in the vocabulary");
                    return Err(Error::format(self.file, format!("merges[{index}]"), reason));
                };
                self.vocab.insert(token.clone(), id);
            }
        }
        let mut builder = BPE::builder()
            .fuse_unk(self.fuse_unknown)
            .byte_fallback(self.byte_fallback)
            .ignore_merges(self.ignore_merges);
        if let Some(unknown) = self.unknown {
            if !self.vocab.contains_key(&unknown) {
                let reason = format!("{unknown:?} is not in the vocabulary");
                return Err(Error::format(self.file, "unk_token", reason));
            }
            builder = builder.unk_token(unknown);
        }
        builder
            .vocab_and_merges(self.vocab, self.merges)
            .build()
            .map_err(|e| Error::format(self.file, "model", e.to_string()))
    }
}
