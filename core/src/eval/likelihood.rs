//! Sums over predicted tokens.

use crate::ids::TokenId;
use rayon::prelude::*;
use serde::Serialize;

/// How well a text is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Perplexity {
    /// Tokens predicted.
    pub tokens: usize,
    /// Mean of `-ln p(token)`.
    pub mean_nll: f64,
    /// `exp(mean_nll)`.
    pub perplexity: f64,
}

/// How far predictions are from those of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// Tokens compared.
    pub tokens: usize,
    /// Mean of `KL(reference || model)` in nats.
    pub mean_kl: f64,
    /// 95 % are at or below it.
    pub p95_kl: f64,
    /// Largest.
    pub max_kl: f64,
    /// Share of tokens for which both find the same one most likely.
    pub top1_agreement: f64,
}

/// Sum for a [`Perplexity`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Likelihood {
    tokens: usize,
    nll: f64,
}

impl Likelihood {
    /// Adds predictions with the tokens that came.
    pub fn add_rows<'a>(&mut self, rows: impl Iterator<Item = (&'a [f32], &'a TokenId)>) {
        for (logits, target) in rows {
            self.nll += log_sum(logits) - f64::from(logits[target.index()]);
            self.tokens += 1;
        }
    }

    /// The result; `None` without a token.
    pub fn perplexity(self) -> Option<Perplexity> {
        let mean_nll = self.nll / self.tokens as f64;
        let tokens = self.tokens;
        (tokens > 0).then(|| Perplexity { tokens, mean_nll, perplexity: mean_nll.exp() })
    }
}

/// Sums for a [`Divergence`].
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    kl: Vec<f64>,
    agreed: usize,
}

impl Agreement {
    /// Adds rows of logits of the reference and of the model for the same places.
    pub fn add_rows(&mut self, reference: &[f32], model: &[f32], vocabulary: usize) {
        let rows = reference.par_chunks(vocabulary).zip(model.par_chunks(vocabulary));
        let compared: Vec<(f64, bool)> = rows.map(|(p, q)| compare(p, q)).collect();
        for (kl, same) in compared {
            self.kl.push(kl);
            self.agreed += usize::from(same);
        }
    }

    /// The result; zeros without a row.
    pub fn divergence(mut self) -> Divergence {
        self.kl.sort_by(f64::total_cmp);
        let tokens = self.kl.len();
        let count = tokens.max(1) as f64;
        // The smallest value that 95 % are at or below.
        let rank = (0.95 * tokens as f64).ceil() as usize;
        let at = |index: usize| self.kl.get(index).copied().unwrap_or(0.0);
        Divergence {
            tokens,
            mean_kl: self.kl.iter().sum::<f64>() / count,
            p95_kl: at(rank.saturating_sub(1)),
            max_kl: at(tokens.saturating_sub(1)),
            top1_agreement: self.agreed as f64 / count,
        }
    }
}

/// `KL(p || q)` of two rows of logits, and whether their largest ones are of the same token.
pub fn compare(reference: &[f32], model: &[f32]) -> (f64, bool) {
    let (log_p, log_q) = (log_sum(reference), log_sum(model));
    let term = |(p, q): (&f32, &f32)| {
        let (p, q) = (f64::from(*p) - log_p, f64::from(*q) - log_q);
        p.exp() * (p - q)
    };
    let kl: f64 = reference.iter().zip(model).map(term).sum();
    // Rounding can leave the sum for two equal rows below zero.
    (kl.max(0.0), argmax(reference) == argmax(model))
}

/// Index of the largest value; the first one wins ties.
pub(super) fn argmax(row: &[f32]) -> usize {
    let best =
        |best: (usize, f32), (at, &v): (usize, &f32)| if v > best.1 { (at, v) } else { best };
    row.iter().enumerate().fold((0, f32::NEG_INFINITY), best).0
}

/// `ln sum exp(logit)`.
fn log_sum(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|v| (f64::from(*v) - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_of_known_rows() {
        let mut sum = Likelihood::default();
        assert!(sum.perplexity().is_none());
        let even = [3.0f32; 8];
        sum.add_rows([(&even[..], &TokenId(2))].into_iter());
        assert!((sum.perplexity().unwrap().perplexity - 8.0).abs() < 1e-9);
        // Probability 1/2 beside 1/8: the geometric mean is 1/4.
        let half = [(7f32).ln(), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        sum.add_rows([(&half[..], &TokenId(0))].into_iter());
        let result = sum.perplexity().unwrap();
        assert_eq!(result.tokens, 2);
        assert!((result.perplexity - 4.0).abs() < 1e-6, "{result:?}");
    }

    #[test]
    fn divergence_of_known_rows() {
        let p = [0.75f32.ln(), 0.25f32.ln()];
        let q = [0.5f32.ln() + 9.0, 0.5f32.ln() + 9.0];
        let (kl, same) = compare(&p, &q);
        let expected = 0.75 * 1.5f64.ln() + 0.25 * 0.5f64.ln();
        assert!((kl - expected).abs() < 1e-6 && same);
        assert_eq!(compare(&p, &p), (0.0, true));
        assert!(!compare(&p, &[0.0, 1.0]).1);
        let mut sums = Agreement::default();
        for step in 0..100 {
            sums.add_rows(&[0.0, 0.0], &[step as f32 / 10.0, 0.0], 2);
        }
        let result = sums.divergence();
        assert_eq!(result.tokens, 100);
        assert!(result.p95_kl < result.max_kl && result.mean_kl < result.p95_kl);
        // Ties go to the first token on both sides.
        assert_eq!(result.top1_agreement, 1.0);
    }
}
