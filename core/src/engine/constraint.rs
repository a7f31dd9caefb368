//! What a sequence may generate next, decided token by token from outside.

use crate::error::Result;
use crate::ids::TokenId;
use std::fmt::Debug;

/// The next token's choice as a [`TokenConstraint`] leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed<'a> {
    /// Any token.
    Any,
    /// This one; no logits are read for it.
    Only(TokenId),
    /// Those whose bit is set: 32 a word, lowest first. Tokens past the end are not allowed.
    Mask(&'a [u32]),
}

/// A rule over the tokens of one sequence: a grammar, or a limit on the reasoning.
///
/// It runs on the engine's thread between two steps, so it has to be quick.
pub trait TokenConstraint: Debug + Send {
    /// What the next token may be.
    ///
    /// # Errors
    /// If the rule itself fails; the sequence then fails, and the others go on.
    fn allowed(&mut self) -> Result<Allowed<'_>>;

    /// Notes the token that was chosen, stop tokens included.
    ///
    /// # Errors
    /// As [`allowed`](Self::allowed).
    fn accept(&mut self, token: TokenId) -> Result<()>;
}
