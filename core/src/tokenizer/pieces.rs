//! SentencePiece vocabularies of a GGUF file, which have scores in place of merges.

use crate::error::{Error, Result};
use crate::weights::GgufVocabulary;
use tokenizers::NormalizerWrapper;
use tokenizers::models::bpe::Vocab;
use tokenizers::normalizers::{Prepend, Replace, Sequence};

/// The character that stands for a space.
pub(super) const SPACE: char = '▁';

/// The merges that the scores stand for, in the order in which the transformers library writes
/// them to the `tokenizer.json` of such a model: each way to make a token of two others, better
/// scores first, then longer left halves, then longer right halves, then the file's order.
///
/// # Errors
/// [`Error::Format`] when there is not one finite score for each token.
pub(super) fn merges(
    vocabulary: &GgufVocabulary,
    plain: &Vocab,
    file: &str,
) -> Result<Vec<(String, String)>> {
    let (tokens, scores) = (&vocabulary.tokens, &vocabulary.scores);
    if scores.len() != tokens.len() {
        let reason = format!("{} scores for {} tokens", scores.len(), tokens.len());
        return Err(Error::format(file, "scores", reason));
    }
    let mut merges = Vec::new();
    for (index, (token, &score)) in tokens.iter().zip(scores).enumerate() {
        if !score.is_finite() {
            return Err(Error::format(file, format!("scores[{index}]"), format!("{score}")));
        }
        if !plain.contains_key(token) {
            continue;
        }
        let mut halves: Vec<(u32, u32, &str, &str)> = token
            .char_indices()
            .skip(1)
            .filter_map(|(at, _)| {
                let (left, right) = token.split_at(at);
                Some((*plain.get(left)?, *plain.get(right)?, left, right))
            })
            .collect();
        halves.sort_unstable();
        merges.extend(halves.into_iter().map(|(_, _, left, right)| (score, left, right)));
    }
    // A stable sort, so that equal ones keep the file's order.
    let length = |text: &str| text.chars().count();
    merges.sort_by(|a, b| {
        let lengths = |half: &(f32, &str, &str)| (length(half.1), length(half.2));
        b.0.total_cmp(&a.0).then_with(|| lengths(b).cmp(&lengths(a)))
    });
    Ok(merges.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect())
}

/// Spaces to [`SPACE`], one of them put before each stretch of text if `prefix`.
///
/// # Errors
/// [`Error::Invalid`] if the replacement cannot be compiled.
pub(super) fn normalizer(prefix: bool) -> Result<NormalizerWrapper> {
    let spaces = Replace::new(" ", SPACE.to_string())
        .map_err(|e| Error::invalid("tokenizer.ggml.model", e.to_string()))?;
    let mut steps = Vec::new();
    if prefix {
        steps.push(NormalizerWrapper::from(Prepend::new(SPACE.to_string())));
    }
    steps.push(NormalizerWrapper::from(spaces));
    Ok(NormalizerWrapper::from(Sequence::new(steps)))
}
