//! Measurements of quality, and how they are shown.

use crate::models::TextModel;
use crate::output::size;
use crate::session;
use anyhow::{Context, Result, bail};
use forge_core::chat::{Conversation, Message, RenderOptions, Role};
use forge_core::eval::{Divergence, Needle, NeedleCase, Perplexity, Scorer, recall, score_text};
use forge_core::kv::KvType;
use forge_core::tokenizer::SpecialTokens;
use forge_core::{Backend, Error, TokenId};
use indicatif::ProgressBar;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::ops::ControlFlow;

/// Prompt and tokens of the measurement of speed.
const SPEED: (usize, usize) = (64, 32);

/// What to measure.
pub(crate) struct Plan<'a> {
    /// Text.
    pub(crate) text: &'a str,
    /// Tokens of a window.
    pub(crate) context: usize,
    /// Most tokens of the text.
    pub(crate) tokens: usize,
    /// Tokens of a case of recall.
    pub(crate) needle_context: usize,
    /// Cases at each depth.
    pub(crate) needles: usize,
    /// Depths.
    pub(crate) depths: &'a [f64],
    /// Storage of keys and values of the model; the reference has f32.
    pub(crate) kv_type: KvType,
}

/// Recall at one depth.
#[derive(Debug, Serialize)]
pub(crate) struct DepthRecall {
    depth: f64,
    right: usize,
    cases: usize,
}

/// Results of a model.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Name of the model, or its type.
    pub(crate) name: String,
    weight_bytes: u64,
    backend: &'static str,
    kv_type: KvType,
    #[serde(flatten)]
    perplexity: Perplexity,
    #[serde(skip_serializing_if = "Option::is_none")]
    divergence: Option<Divergence>,
    recall: Vec<DepthRecall>,
    decode_tokens_per_second: f64,
}

impl Row {
    /// Mean divergence from the reference, if there is one.
    pub(crate) fn mean_kl(&self) -> Option<f64> {
        self.divergence.map(|divergence| divergence.mean_kl)
    }
}

/// Results of several models.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    /// One for each.
    pub(crate) rows: Vec<Row>,
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| model | size | perplexity | mean KL | 95 % KL | max KL | same top token | recall \
             | tok/s |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let (name, size, perplexity) =
                (&row.name, size(row.weight_bytes), row.perplexity.perplexity);
            write!(f, "| {name} | {size} | {perplexity:.3} | ")?;
            match &row.divergence {
                Some(d) => write!(
                    f,
                    "{:.5} | {:.5} | {:.4} | {:.2} % | ",
                    d.mean_kl,
                    d.p95_kl,
                    d.max_kl,
                    100.0 * d.top1_agreement
                )?,
                None => write!(f, "- | - | - | - | ")?,
            }
            let (right, cases) = row
                .recall
                .iter()
                .fold((0, 0), |(right, cases), depth| (right + depth.right, cases + depth.cases));
            let recall = if cases == 0 { "-".to_owned() } else { format!("{right} of {cases}") };
            writeln!(f, "{recall} | {:.1} |", row.decode_tokens_per_second)?;
        }
        Ok(())
    }
}

impl Plan<'_> {
    /// Measures a model, beside a reference if there is one.
    ///
    /// # Errors
    /// If the text is too short, the tokenizers differ; those of the models.
    pub(crate) fn measure<B: Backend>(
        &self,
        backend: &B,
        model: &TextModel,
        reference: Option<&TextModel>,
    ) -> Result<Row> {
        let mut tokens = model.tokenizer.encode_prompt(self.text, SpecialTokens::AsText)?;
        tokens.truncate(self.tokens);
        if let Some(reference) = reference {
            let mut other = reference.tokenizer.encode_prompt(self.text, SpecialTokens::AsText)?;
            other.truncate(self.tokens);
            if other != tokens {
                bail!("reference: its tokenizer gives other tokens for the text");
            }
        }
        let cases = self.cases(model)?;
        let name = backend.info().backend;
        let context = self.context.max(self.needle_context);
        let mut scorer = self.load(backend, model, context, self.kv_type)?;
        let mut reference = match reference {
            Some(model) => Some(self.load(backend, model, context, KvType::F32)?),
            None => None,
        };
        let (perplexity, divergence) = watched("scoring", tokens.len(), |progress| {
            score_text(&mut scorer, reference.as_mut(), &tokens, self.context, progress)
        })?;
        // The reference is not needed any more.
        drop(reference);
        let length = cases.iter().map(|case| case.prompt.len() + case.answer.len()).sum();
        let right = watched("asking", length, |progress| recall(&mut scorer, &cases, progress))?;
        let prompt: Vec<TokenId> = tokens.iter().copied().take(SPEED.0).collect();
        let count = SPEED.1.min(context.saturating_sub(prompt.len() + 1));
        Ok(Row {
            name: model.checkpoint.name.clone(),
            weight_bytes: session::weight_bytes(&model.checkpoint),
            backend: name,
            kv_type: self.kv_type,
            perplexity,
            divergence,
            recall: self.by_depth(&cases, &right),
            decode_tokens_per_second: scorer.decode_speed(&prompt, count)?,
        })
    }

    fn load<'b, B: Backend>(
        &self,
        backend: &'b B,
        model: &TextModel,
        context: usize,
        kv_type: KvType,
    ) -> Result<Scorer<'b, B>> {
        let checkpoint = &model.checkpoint;
        let bar = session::bar("loading", session::weight_bytes(checkpoint));
        let scorer = Scorer::new(backend, checkpoint, context, kv_type, &mut |state| {
            bar.set_position(state.done_bytes);
        });
        bar.finish_and_clear();
        scorer.with_context(|| checkpoint.path.display().to_string())
    }

    fn cases(&self, model: &TextModel) -> Result<Vec<NeedleCase>> {
        let template = model.template()?;
        let render = |message: &str| -> forge_core::Result<Vec<TokenId>> {
            let Some(template) = &template else {
                let text = format!("{message}\n\nAnswer: ");
                return model.tokenizer.encode_prompt(&text, SpecialTokens::AsText);
            };
            let mut conversation = Conversation::default();
            conversation.messages.push(Message::new(Role::User, message));
            let options =
                RenderOptions { enable_thinking: Some(false), ..RenderOptions::default() };
            template.render(&conversation, &options)?.encode(&model.tokenizer)
        };
        let needle = Needle {
            tokenizer: &model.tokenizer,
            text: self.text,
            context: self.needle_context,
            render: &render,
        };
        let mut cases = Vec::new();
        for &depth in self.depths {
            for _ in 0..self.needles {
                cases.push(needle.case(depth, cases.len())?);
            }
        }
        Ok(cases)
    }

    fn by_depth(&self, cases: &[NeedleCase], right: &[bool]) -> Vec<DepthRecall> {
        let of = |&depth: &f64| {
            let results = cases.iter().zip(right).filter(|(case, _)| case.depth == depth);
            let results: Vec<bool> = results.map(|(_, right)| *right).collect();
            let right = results.iter().filter(|right| **right).count();
            DepthRecall { depth, right, cases: results.len() }
        };
        self.depths.iter().filter(|_| self.needles > 0).map(of).collect()
    }
}

/// Runs `work` with a bar over `tokens`; Ctrl-C ends it.
fn watched<T>(
    verb: &'static str,
    tokens: usize,
    work: impl FnOnce(&mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<T, Error>,
) -> Result<T> {
    let watch = crate::interrupt::Watch::start();
    let bar = ProgressBar::new(tokens as u64).with_message(verb);
    let result = work(&mut |done| {
        bar.set_position(done as u64);
        if watch.fired() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    Ok(result?)
}
