//! What a reply may say, token by token: a limit on the reasoning, then a grammar over the answer
//! or over its tool calls.

use super::tools::OPEN as CALL_OPEN;
use forge_core::engine::{Allowed, TokenConstraint};
use forge_core::tokenizer::{SpecialTokens, Tokenizer};
use forge_core::{Error, Result, TokenId};
use llguidance::Matcher;
use std::collections::VecDeque;
use std::fmt;

const THINK_OPEN: &str = "<think>";
const THINK_CLOSE: &str = "</think>";
/// What closes a reasoning that has used up its budget.
const CUT: &str = "\n</think>\n\n";

/// The tokens that steer a reply.
#[derive(Clone, Debug)]
pub(crate) struct SteeringTokens {
    open: Option<TokenId>,
    close: Option<TokenId>,
    call: Option<TokenId>,
    cut: Vec<TokenId>,
    stops: Vec<TokenId>,
    vocabulary: usize,
}

impl SteeringTokens {
    /// Those of a model.
    pub(crate) fn of(tokenizer: &Tokenizer, stops: &[TokenId]) -> Self {
        Self {
            open: tokenizer.id_of(THINK_OPEN),
            close: tokenizer.id_of(THINK_CLOSE),
            call: tokenizer.id_of(CALL_OPEN),
            cut: tokenizer.encode(CUT, SpecialTokens::AsText).unwrap_or_default(),
            stops: stops.to_vec(),
            vocabulary: tokenizer.vocab_size(),
        }
    }

    /// Whether the reasoning begins and ends with tokens of its own. Else it cannot be steered.
    pub(crate) fn knows_thinking(&self) -> bool {
        self.open.is_some() && self.close.is_some()
    }

    /// Whether a call begins with a token of its own. Else its grammar has no beginning.
    pub(crate) fn knows_calls(&self) -> bool {
        self.call.is_some()
    }

    /// Every token but `banned`.
    fn all_but<'a>(&self, banned: impl IntoIterator<Item = &'a TokenId>) -> Vec<u32> {
        let mut mask = vec![u32::MAX; self.vocabulary.div_ceil(32)];
        for token in banned {
            set(&mut mask, *token, false);
        }
        mask
    }
}

fn set(mask: &mut [u32], token: TokenId, on: bool) {
    let Some(word) = mask.get_mut(token.index() / 32) else { return };
    let bit = 1 << (token.index() % 32);
    *word = if on { *word | bit } else { *word & !bit };
}

/// Rules of one reply.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    /// The prompt has opened the reasoning.
    pub(crate) in_reasoning: bool,
    /// The reply must not reason.
    pub(crate) no_reasoning: bool,
    /// Most tokens of reasoning.
    pub(crate) budget: Option<usize>,
    /// Grammar of the whole answer.
    pub(crate) answer: Option<Matcher>,
    /// Grammar of a call from behind its opening token on.
    pub(crate) call: Option<Matcher>,
    /// At most one call.
    pub(crate) single_call: bool,
}

impl Rules {
    /// True if there is nothing to enforce.
    pub(crate) fn is_empty(&self) -> bool {
        self.answer.is_none() && self.call.is_none() && self.budget.is_none() && !self.no_reasoning
    }
}

/// Where a reply is.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing yet: reasoning may begin.
    Start,
    Reasoning {
        tokens: usize,
    },
    /// These tokens close the reasoning.
    Closing(VecDeque<TokenId>),
    Answer,
    /// In a call.
    Call,
    /// The answer is over: only a stop token may follow.
    Over,
}

/// [`Rules`] at work.
pub(crate) struct ReplyConstraint {
    tokens: SteeringTokens,
    rules: Rules,
    phase: Phase,
    /// The reasoning was cut off: its tags must not come again.
    cut: bool,
    /// The call that is being written.
    call: Option<Matcher>,
    mask: Vec<u32>,
}

impl fmt::Debug for ReplyConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyConstraint").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl ReplyConstraint {
    /// A constraint for one reply.
    pub(crate) fn new(tokens: SteeringTokens, rules: Rules) -> Self {
        let phase = if rules.in_reasoning { Phase::Reasoning { tokens: 0 } } else { Phase::Start };
        Self { tokens, rules, phase, cut: false, call: None, mask: Vec::new() }
    }

    /// Puts the tokens that `matcher` allows into the mask; if the text may end, any stop token.
    fn mask_of(&mut self, which: Which) -> Result<()> {
        let matcher = match which {
            Which::Answer => self.rules.answer.as_mut(),
            Which::Call => self.call.as_mut(),
        };
        let Some(matcher) = matcher else { return Err(failed("there is no grammar")) };
        let may_end = matcher.is_accepting().map_err(failed)?;
        let mask = matcher.compute_mask_or_eos().map_err(failed)?;
        self.mask.clear();
        self.mask.extend_from_slice(mask.as_slice());
        for stop in &self.tokens.stops {
            set(&mut self.mask, *stop, may_end && which == Which::Answer);
        }
        Ok(())
    }

    fn begin_answer(&mut self, token: TokenId) -> Result<()> {
        self.phase = Phase::Answer;
        self.accept(token)
    }
}

/// A grammar of a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Answer,
    Call,
}

fn failed(error: impl fmt::Display) -> Error {
    Error::invalid("grammar", error.to_string())
}

impl TokenConstraint for ReplyConstraint {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        if let Phase::Reasoning { tokens } = self.phase
            && self.rules.budget.is_some_and(|budget| tokens >= budget)
        {
            self.cut = true;
            self.phase = Phase::Closing(self.tokens.cut.iter().copied().collect());
        }
        let strict = self.rules.answer.is_some();
        match &self.phase {
            Phase::Closing(tokens) => {
                let next = tokens.front().copied();
                return Ok(next.map_or(Allowed::Any, Allowed::Only));
            }
            Phase::Over => {
                self.mask = vec![0; self.tokens.vocabulary.div_ceil(32)];
                for stop in &self.tokens.stops {
                    set(&mut self.mask, *stop, true);
                }
            }
            // A reply that ends here would have no answer at all.
            Phase::Reasoning { .. } if strict => {
                self.mask = self.tokens.all_but(&self.tokens.stops)
            }
            Phase::Reasoning { .. } => return Ok(Allowed::Any),
            Phase::Start if strict => {
                self.mask_of(Which::Answer)?;
                if let Some(open) = self.tokens.open.filter(|_| !self.rules.no_reasoning) {
                    set(&mut self.mask, open, true);
                }
            }
            Phase::Start if self.rules.no_reasoning => {
                self.mask = self.tokens.all_but(&self.tokens.open);
            }
            Phase::Start => return Ok(Allowed::Any),
            Phase::Answer if strict => self.mask_of(Which::Answer)?,
            Phase::Answer if self.cut => {
                self.mask = self.tokens.all_but(self.tokens.open.iter().chain(&self.tokens.close));
            }
            Phase::Answer => return Ok(Allowed::Any),
            Phase::Call => self.mask_of(Which::Call)?,
        }
        Ok(Allowed::Mask(&self.mask))
    }

    fn accept(&mut self, token: TokenId) -> Result<()> {
        let stops = self.tokens.stops.contains(&token);
        match &mut self.phase {
            Phase::Start if Some(token) == self.tokens.open && !self.rules.no_reasoning => {
                self.phase = Phase::Reasoning { tokens: 1 };
            }
            Phase::Start => return self.begin_answer(token),
            Phase::Reasoning { tokens } => {
                *tokens += 1;
                if Some(token) == self.tokens.close {
                    self.phase = Phase::Answer;
                }
            }
            Phase::Closing(tokens) => {
                tokens.pop_front();
                if tokens.is_empty() {
                    self.phase = Phase::Answer;
                }
            }
            _ if stops => {}
            Phase::Answer => {
                if let Some(answer) = &mut self.rules.answer {
                    answer.consume_token(token.0).map_err(failed)?;
                } else if Some(token) == self.tokens.call
                    && let Some(call) = &self.rules.call
                {
                    self.call = Some(call.deep_clone());
                    self.phase = Phase::Call;
                }
            }
            Phase::Call => {
                if let Some(call) = &mut self.call {
                    call.consume_token(token.0).map_err(failed)?;
                    if call.is_stopped() {
                        self.call = None;
                        let over = self.rules.single_call;
                        self.phase = if over { Phase::Over } else { Phase::Answer };
                    }
                }
            }
            Phase::Over => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "constraint/tests.rs"]
mod tests;
