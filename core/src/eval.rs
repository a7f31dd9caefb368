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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::KvType;
    use crate::reference::Cpu;
    use crate::weights::Checkpoint;
    use crate::weights::samples::fixture;

    fn tokens(count: u32) -> Vec<TokenId> {
        (0..count).map(|at| TokenId((at * at + 3 * at + 1) % 500)).collect()
    }

    fn scorer<'a>(cpu: &'a Cpu, checkpoint: &Checkpoint, kv_type: KvType) -> Scorer<'a, Cpu> {
        Scorer::new(cpu, checkpoint, 128, kv_type, &mut |_| ()).unwrap()
    }

    #[test]
    fn the_second_half_of_each_window_is_scored() {
        let (cpu, checkpoint) = (Cpu::new(), Checkpoint::open(fixture("qwen3-dense")).unwrap());
        let text = tokens(250);
        let mut model = scorer(&cpu, &checkpoint, KvType::F32);
        let mut go = |_| ControlFlow::Continue(());
        let (result, none) = score_text(&mut model, None, &text, 100, &mut go).unwrap();
        assert!(none.is_none());
        // Two windows of 100 and one of 50, whose last tokens have no successor.
        assert_eq!(result.tokens, 49 + 49 + 24);
        // The same by hand for the first window.
        model.start();
        let mut logits = Vec::new();
        for chunk in text[..100].chunks(7) {
            logits.extend_from_slice(model.advance(chunk, chunk.len()).unwrap());
        }
        let rows: Vec<&[f32]> = logits.chunks(model.vocabulary()).collect();
        let mut expected = Likelihood::default();
        expected.add_rows(rows[50..99].iter().copied().zip(&text[51..100]));
        let (first, _) = score_text(&mut model, None, &text[..100], 100, &mut go).unwrap();
        let expected = expected.perplexity().unwrap();
        assert_eq!(first.tokens, 49);
        assert!((first.mean_nll - expected.mean_nll).abs() < 1e-4, "{first:?} {expected:?}");
    }

    #[test]
    fn a_model_does_not_diverge_from_itself() {
        let (cpu, checkpoint) =
            (Cpu::new(), Checkpoint::open(fixture("hybrid-dense-tied")).unwrap());
        let text = tokens(128);
        let mut go = |_| ControlFlow::Continue(());
        let mut divergence = |kv_type| {
            let mut reference = scorer(&cpu, &checkpoint, KvType::F32);
            let mut model = scorer(&cpu, &checkpoint, kv_type);
            let result = score_text(&mut model, Some(&mut reference), &text, 128, &mut go).unwrap();
            result.1.unwrap()
        };
        let same = divergence(KvType::F32);
        assert_eq!((same.mean_kl, same.max_kl, same.top1_agreement), (0.0, 0.0, 1.0));
        let cheaper = divergence(KvType::Fp8);
        assert!(cheaper.mean_kl > 0.0 && cheaper.mean_kl < 0.1, "{cheaper:?}");
        assert!(cheaper.p95_kl <= cheaper.max_kl);
    }

    #[test]
    fn bad_texts_are_refused() {
        let (cpu, checkpoint) = (Cpu::new(), Checkpoint::open(fixture("qwen3-dense")).unwrap());
        let mut model = scorer(&cpu, &checkpoint, KvType::F16);
        let mut go = |_| ControlFlow::Continue(());
        let mut message = |text: &[TokenId]| {
            score_text(&mut model, None, text, 100, &mut go).unwrap_err().to_string()
        };
        assert_eq!(message(&tokens(3)), "text: 3 tokens are too few to score");
        assert!(message(&[TokenId(1 << 20); 8]).contains("token 1048576"));
        let mut stop = |_| ControlFlow::Break(());
        let stopped = score_text(&mut model, None, &tokens(50), 50, &mut stop).unwrap_err();
        assert_eq!(stopped.to_string(), "evaluation: interrupted");
        assert!(Scorer::new(&cpu, &checkpoint, 1 << 30, KvType::F16, &mut |_| ()).is_err());
    }
}
