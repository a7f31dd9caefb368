//! From logits to a token: bias, penalties, mask, temperature, top-k, top-p, min-p, a seeded draw.
//! Pure.
//!
//! Order: bias, penalties over generated tokens (never the prompt), mask, top-k, temperature,
//! min-p, top-p.
//! Presence and frequency as in the OpenAI API, repetition as in CTRL (Keskar et al., 2019).

use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::weights::GenerationDefaults;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

/// How to choose tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 = greedy; at most 2 makes sense, any finite value is accepted up to 100.
    pub temperature: f32,
    /// Keep the `k` most likely; 0 = all.
    pub top_k: u32,
    /// Keep the smallest set with this probability; 1 = all.
    pub top_p: f32,
    /// Drop tokens below this share of the best one's probability; 0 = none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of generated tokens; 1 = off.
    pub repetition_penalty: f32,
    /// Subtracted once from logits of generated tokens.
    pub presence_penalty: f32,
    /// Subtracted per occurrence.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed; `None` = from the system.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl SamplingParams {
    /// A checkpoint's defaults; greedy where it says nothing.
    pub fn from_defaults(defaults: &GenerationDefaults) -> Self {
        let base = Self::default();
        Self {
            temperature: defaults.temperature.unwrap_or(base.temperature),
            top_k: defaults.top_k.unwrap_or(base.top_k),
            top_p: defaults.top_p.unwrap_or(base.top_p),
            min_p: defaults.min_p.unwrap_or(base.min_p),
            repetition_penalty: defaults.repetition_penalty.unwrap_or(base.repetition_penalty),
            ..base
        }
    }

    /// Refuses values outside their range.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the field.
    pub fn check(&self) -> Result<()> {
        let ranges = [
            ("temperature", self.temperature, 0.0, 100.0),
            ("top_p", self.top_p, 0.0, 1.0),
            ("min_p", self.min_p, 0.0, 1.0),
            ("presence_penalty", self.presence_penalty, -100.0, 100.0),
            ("frequency_penalty", self.frequency_penalty, -100.0, 100.0),
        ];
        for (field, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::invalid(field, format!("{value} is outside {low}..={high}")));
            }
        }
        if let Some((token, bias)) = self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            return Err(Error::invalid("logit_bias", format!("{bias} for token {token}")));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty <= 100.0) {
            let value = self.repetition_penalty;
            return Err(Error::invalid(
                "repetition_penalty",
                format!("{value} is outside (0, 100]"),
            ));
        }
        Ok(())
    }

    /// True if the device's argmax is the answer.
    pub fn is_plain_greedy(&self) -> bool {
        (self.temperature == 0.0 || self.top_k == 1)
            && !self.has_penalties()
            && self.logit_bias.is_empty()
    }

    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }
}

/// Sampler of one sequence.
#[derive(Debug)]
pub struct Sampler {
    params: SamplingParams,
    random: ChaCha8Rng,
    generated: HashMap<TokenId, u32>,
}

impl Sampler {
    /// A sampler with its own random stream.
    pub fn new(params: SamplingParams) -> Self {
        let seed = params.seed.unwrap_or_else(|| rand::rng().random());
        Self { params, random: ChaCha8Rng::seed_from_u64(seed), generated: HashMap::new() }
    }

    /// True if the device's argmax is the answer.
    pub fn is_plain_greedy(&self) -> bool {
        self.params.is_plain_greedy()
    }

    /// Notes a token that was chosen, for the penalties.
    pub fn accept(&mut self, token: TokenId) {
        if self.params.has_penalties() {
            *self.generated.entry(token).or_insert(0) += 1;
        }
    }

    /// Chooses a token. Those whose bit is not in `mask` (32 a word, lowest first) are never
    /// chosen. `logits` is changed by bias, penalties and mask.
    ///
    /// # Errors
    /// [`Error::NotFinite`] on NaN, +inf, or when every logit is -inf.
    pub fn sample(
        &mut self,
        logits: &mut [f32],
        mask: Option<&[u32]>,
        position: u32,
    ) -> Result<TokenId> {
        for (token, bias) in &self.params.logit_bias {
            if let Some(logit) = logits.get_mut(token.index()) {
                *logit += bias;
            }
        }
        self.penalize(logits);
        if let Some(mask) = mask {
            apply(mask, logits);
        }
        let best = checked_argmax(logits, position)?;
        if self.params.temperature == 0.0 || self.params.top_k == 1 {
            return Ok(TokenId(best as u32));
        }
        let candidates = self.candidates(logits, logits[best]);
        let total: f64 = candidates.iter().map(|(_, p)| *p).sum();
        let mut rest = self.random.random::<f64>() * total;
        for (token, probability) in &candidates {
            rest -= probability;
            if rest <= 0.0 {
                return Ok(TokenId(*token));
            }
        }
        Ok(TokenId(candidates.last().map_or(best as u32, |(token, _)| *token)))
    }

    fn penalize(&self, logits: &mut [f32]) {
        for (token, count) in &self.generated {
            let Some(logit) = logits.get_mut(token.index()) else { continue };
            let factor = self.params.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / factor } else { *logit * factor };
            *logit -= self.params.presence_penalty + self.params.frequency_penalty * *count as f32;
        }
    }

    /// Tokens that survive the filters with unnormalised probabilities, most likely first.
    fn candidates(&self, logits: &[f32], best: f32) -> Vec<(u32, f64)> {
        let params = &self.params;
        let inverse = 1.0 / f64::from(params.temperature);
        // A token more than this far below the best has a probability that f64 rounds to nothing.
        let floor = best - (745.0 * params.temperature).min(f32::MAX);
        let mut all: Vec<(u32, f64)> = logits
            .iter()
            .enumerate()
            .filter(|(_, logit)| **logit >= floor)
            .map(|(i, logit)| (i as u32, (f64::from(logit - best) * inverse).exp()))
            .collect();
        let order = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        let k = params.top_k as usize;
        if k > 0 && k < all.len() {
            all.select_nth_unstable_by(k - 1, order);
            all.truncate(k);
        }
        all.retain(|(_, p)| *p >= f64::from(params.min_p));
        all.sort_unstable_by(order);
        if params.top_p < 1.0 {
            let total: f64 = all.iter().map(|(_, p)| *p).sum();
            let mut sum = 0.0;
            let kept = all.iter().position(|(_, p)| {
                sum += p;
                sum >= f64::from(params.top_p) * total
            });
            all.truncate(kept.map_or(all.len(), |last| last + 1));
        }
        all
    }
}

/// Whether the bit of token `index` is set in `mask`.
fn allowed(mask: &[u32], index: usize) -> bool {
    mask.get(index / 32).is_some_and(|word| word >> (index % 32) & 1 == 1)
}

/// Forbids the tokens that `mask` lacks.
fn apply(mask: &[u32], logits: &mut [f32]) {
    for (index, logit) in logits.iter_mut().enumerate() {
        if !allowed(mask, index) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Log-probabilities of a position, before bias, penalties, mask and temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// That of the chosen token.
    pub chosen: f32,
    /// The most likely tokens, best first.
    pub top: Vec<(TokenId, f32)>,
}

impl TokenLogprobs {
    /// Those of the model's own `logits`: of token `chosen` and of the `top` best.
    pub fn of(logits: &[f32], chosen: TokenId, top: usize) -> Self {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - best).exp()).sum();
        let total = f64::from(best) + sum.ln();
        let logprob = |logit: f32| (f64::from(logit) - total) as f32;
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let by_logit =
            |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if top < order.len() {
            order.select_nth_unstable_by(top, by_logit);
            order.truncate(top);
        }
        order.sort_unstable_by(by_logit);
        Self {
            chosen: logits.get(chosen.index()).map_or(f32::NEG_INFINITY, |logit| logprob(*logit)),
            top: order.into_iter().map(|id| (TokenId(id), logprob(logits[id as usize]))).collect(),
        }
    }
}

/// Index of the largest logit, lowest index first.
fn checked_argmax(logits: &[f32], position: u32) -> Result<usize> {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if logit.is_nan() || *logit == f32::INFINITY {
            return Err(Error::NotFinite { position, detail: format!("token {i}: {logit}") });
        }
        if *logit > logits[best] {
            best = i;
        }
    }
    if logits.get(best).is_none_or(|logit| *logit == f32::NEG_INFINITY) {
        return Err(Error::NotFinite { position, detail: "every logit is -inf".into() });
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_many(params: SamplingParams, logits: &[f32], draws: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(params);
        (0..draws).map(|_| sampler.sample(&mut logits.to_vec(), None, 0).unwrap().0).collect()
    }

    fn seeded(temperature: f32) -> SamplingParams {
        SamplingParams { temperature, seed: Some(7), ..SamplingParams::default() }
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_logits() {
        assert_eq!(sample_many(seeded(0.0), &[1.0, 5.0, 5.0], 1), [1]);
        let one = SamplingParams { top_k: 1, ..seeded(1.0) };
        assert_eq!(sample_many(one, &[1.0, 5.0, 5.0], 3), [1, 1, 1]);
    }

    #[test]
    fn frequencies_follow_the_distribution() {
        let logits = [0.0, 1.0, 2.0];
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let draws = sample_many(seeded(1.0), &logits, 20_000);
        for (token, logit) in logits.iter().enumerate() {
            let expected = f64::from(*logit).exp() / total;
            let seen = draws.iter().filter(|t| **t == token as u32).count() as f64 / 20_000.0;
            assert!((seen - expected).abs() < 0.012, "{token}: {seen} {expected}");
        }
    }

    #[test]
    fn filters_drop_the_tail() {
        let logits = [0.0, 1.0, 2.0, 3.0];
        let only = |params: SamplingParams| {
            let mut seen = sample_many(params, &logits, 500);
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        assert_eq!(only(SamplingParams { top_k: 2, ..seeded(1.0) }), [2, 3]);
        assert_eq!(only(SamplingParams { top_p: 0.6, ..seeded(1.0) }), [3]);
        assert_eq!(only(SamplingParams { top_p: 0.0, ..seeded(1.0) }), [3]);
        assert_eq!(only(SamplingParams { min_p: 0.3, ..seeded(1.0) }), [2, 3]);
        assert_eq!(only(SamplingParams { min_p: 1.0, ..seeded(1.0) }), [3]);
    }

    #[test]
    fn same_seed_same_tokens_and_extremes_do_not_break() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 997) as f32 * 0.01).collect();
        assert_eq!(sample_many(seeded(0.8), &logits, 50), sample_many(seeded(0.8), &logits, 50));
        for temperature in [1e-9, 2.0, 100.0] {
            sample_many(seeded(temperature), &logits, 10);
        }
        let many = SamplingParams { top_k: 1_000_000_000, ..seeded(1.0) };
        sample_many(many, &logits, 10);
    }

    #[test]
    fn penalties_apply_to_generated_tokens_only() {
        let params = SamplingParams { presence_penalty: 2.0, ..seeded(0.0) };
        let mut sampler = Sampler::new(params);
        let logits = [1.0, 2.0, 0.0];
        assert_eq!(sampler.sample(&mut logits.to_vec(), None, 0).unwrap(), TokenId(1));
        sampler.accept(TokenId(1));
        assert_eq!(sampler.sample(&mut logits.to_vec(), None, 1).unwrap(), TokenId(0));
    }

    #[test]
    fn a_bias_moves_the_choice_and_needs_the_logits() {
        let params = SamplingParams { logit_bias: vec![(TokenId(2), 3.0)], ..seeded(0.0) };
        assert!(!params.is_plain_greedy() && params.check().is_ok());
        assert_eq!(sample_many(params, &[1.0, 2.0, 0.0], 1), [2]);
        let bad = SamplingParams { logit_bias: vec![(TokenId(0), f32::NAN)], ..seeded(0.0) };
        assert!(bad.check().is_err());
    }

    #[test]
    fn a_masked_token_is_never_chosen() {
        for temperature in [0.0, 5.0] {
            let mut sampler = Sampler::new(seeded(temperature));
            for _ in 0..200 {
                let mut logits = [9.0; 40];
                // Token 1 and the second word's token 33.
                let chosen = sampler.sample(&mut logits, Some(&[2, 2]), 0).unwrap();
                assert!(chosen == TokenId(1) || chosen == TokenId(33), "{chosen}");
            }
            assert!(sampler.sample(&mut [1.0; 4], Some(&[0]), 0).is_err());
            assert!(sampler.sample(&mut [1.0; 4], Some(&[]), 0).is_err());
        }
    }

    #[test]
    fn logprobs_are_a_log_softmax() {
        let logits = [0.0, 2.0, 1.0];
        let found = TokenLogprobs::of(&logits, TokenId(0), 2);
        let total: f32 = logits.iter().map(|l| l.exp()).sum();
        assert!((found.chosen - (1.0 / total).ln()).abs() < 1e-6);
        assert_eq!(found.top.iter().map(|(t, _)| t.0).collect::<Vec<_>>(), [1, 2]);
        assert!((found.top[0].1 - (2f32.exp() / total).ln()).abs() < 1e-6);
        assert_eq!(TokenLogprobs::of(&logits, TokenId(9), 7).top.len(), 3);
        assert!(TokenLogprobs::of(&logits, TokenId(1), 0).top.is_empty());
    }

    #[test]
    fn poisoned_logits_are_an_error() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut sampler = Sampler::new(seeded(1.0));
            assert!(sampler.sample(&mut [0.0, bad], None, 3).is_err());
        }
        let mut sampler = Sampler::new(seeded(1.0));
        assert!(sampler.sample(&mut [f32::NEG_INFINITY; 3], None, 3).is_err());
        assert!(sampler.sample(&mut [f32::NEG_INFINITY, 0.0], None, 3).is_ok());
    }

    #[test]
    fn out_of_range_parameters_are_refused_by_name() {
        let bad = [
            SamplingParams { temperature: -1.0, ..SamplingParams::default() },
            SamplingParams { temperature: f32::NAN, ..SamplingParams::default() },
            SamplingParams { top_p: 1.0001, ..SamplingParams::default() },
            SamplingParams { min_p: -0.1, ..SamplingParams::default() },
            SamplingParams { repetition_penalty: 0.0, ..SamplingParams::default() },
        ];
        for params in bad {
            assert!(params.check().is_err(), "{params:?}");
        }
    }
}
