//! Quality in numbers: perplexity of a text, divergence from a reference model, recall of facts from
//! different depths of a context. `docs/quality.md` says what each number means.

mod likelihood;
mod needle;
mod scorer;

pub use likelihood::{Agreement, Divergence, Likelihood, Perplexity, compare};
pub use needle::{Needle, NeedleCase};
pub use scorer::Scorer;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use std::ops::ControlFlow;

/// Told of the tokens done; may end the evaluation.
pub type EvalProgress<'a> = &'a mut dyn FnMut(usize) -> ControlFlow<()>;

fn go_on(progress: &mut dyn FnMut(usize) -> ControlFlow<()>, done: usize) -> Result<()> {
    match progress(done) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::invalid("evaluation", "interrupted")),
    }
}

/// Perplexity of `tokens`, cut into windows of `window` tokens. Of each window the first half
/// is context only, so that no prediction has less than half a window to go by. With a reference
/// the distributions over the next token are compared as well.
///
/// # Errors
/// [`Error::Invalid`] for a text too short to score, vocabularies that differ, or an end by
/// `progress`; [`Error::NotFinite`]; device errors.
pub fn score_text<B: Backend>(
    model: &mut Scorer<'_, B>,
    mut reference: Option<&mut Scorer<'_, B>>,
    tokens: &[TokenId],
    window: usize,
    progress: EvalProgress<'_>,
) -> Result<(Perplexity, Option<Divergence>)> {
    if let Some(reference) = &reference
        && reference.vocabulary() != model.vocabulary()
    {
        let (own, other) = (model.vocabulary(), reference.vocabulary());
        return Err(Error::invalid("reference", format!("{other} tokens, the model has {own}")));
    }
    let vocabulary = model.vocabulary();
    let mut likelihood = Likelihood::default();
    let mut agreement = Agreement::default();
    let mut done = 0;
    for window in tokens.chunks(window.max(1)) {
        let warm = window.len() / 2;
        if window.len() < 4 {
            break;
        }
        model.start();
        if let Some(reference) = &mut reference {
            reference.start();
        }
        let mut position = 0;
        for chunk in window.chunks(model.rows()) {
            go_on(progress, done)?;
            let end = position + chunk.len();
            let outputs = end.saturating_sub(warm.max(position)).min(chunk.len());
            let first = end - outputs;
            let targets: Vec<TokenId> =
                window[(first + 1).min(window.len())..].iter().copied().take(outputs).collect();
            let logits = model.advance(chunk, outputs)?;
            let rows = logits.chunks(vocabulary).zip(&targets);
            likelihood.add_rows(rows);
            if let Some(reference) = &mut reference {
                let expected = reference.advance(chunk, outputs)?;
                let count = targets.len() * vocabulary;
                agreement.add_rows(&expected[..count], &logits[..count], vocabulary);
            }
            position = end;
            done += chunk.len();
        }
    }
    let perplexity = likelihood.perplexity().ok_or_else(|| {
        Error::invalid("text", format!("{} tokens are too few to score", tokens.len()))
    })?;
    Ok((perplexity, reference.is_some().then(|| agreement.divergence())))
}

/// Whether the model's greedy continuation of each prompt is the answer.
///
/// # Errors
/// [`Error::Invalid`] for a case longer than the context, or an end by `progress`; device errors.
pub fn recall<B: Backend>(
    model: &mut Scorer<'_, B>,
    cases: &[NeedleCase],
    progress: EvalProgress<'_>,
) -> Result<Vec<bool>> {
    let vocabulary = model.vocabulary();
    let mut results = Vec::with_capacity(cases.len());
    let mut done = 0;
    for case in cases {
        let tokens: Vec<TokenId> = case.prompt.iter().chain(&case.answer).copied().collect();
        // The logits of the last token of the prompt give the first one of the answer.
        let warm = case.prompt.len() - 1;
        let end = tokens.len() - 1;
        model.start();
        let (mut position, mut right) = (0, true);
        for chunk in tokens[..end].chunks(model.rows()) {
            go_on(progress, done)?;
            let outputs = (position + chunk.len()).saturating_sub(warm.max(position));
            let logits = model.advance(chunk, outputs)?;
            let first = position + chunk.len() - outputs;
            for (at, row) in logits.chunks(vocabulary).enumerate() {
                // Fed with the right answer so far, which is the same for an exact one.
                right &= likelihood::argmax(row) == tokens[first + at + 1].index();
            }
            position += chunk.len();
            done += chunk.len();
        }
        results.push(right);
    }
    Ok(results)
}
