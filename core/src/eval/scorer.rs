//! A model that reads a text and gives the logits of its last rows.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::kv::{BLOCK_TOKENS, KvType};
use crate::model::{Batch, Cache, CacheOptions, PassShape, StepInputs, Workspace, load};
use crate::model::{LoadProgress, Model};
use crate::weights::Checkpoint;
use std::collections::HashMap;
use std::time::Instant;

/// Most rows of a pass. All of them may have logits, which are as many floats as the vocabulary.
const ROWS: usize = 64;

/// A loaded model with one sequence.
pub struct Scorer<'a, B: Backend> {
    backend: &'a B,
    model: Model<B>,
    cache: Cache<B>,
    work: Workspace<B>,
    inputs: StepInputs<B>,
    programs: HashMap<PassShape, B::Program>,
    context: usize,
    rows: usize,
    /// Tokens read.
    length: usize,
    logits: Vec<f32>,
}

impl<'a, B: Backend> Scorer<'a, B> {
    /// Loads a checkpoint, with room for `context` tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a context that the model was not made for; those of loading and
    /// allocating.
    pub fn new(
        backend: &'a B,
        checkpoint: &Checkpoint,
        context: usize,
        kv_type: KvType,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self> {
        let most = checkpoint.config.max_positions;
        if !(4..=most).contains(&context) {
            return Err(Error::invalid("ctx", format!("{context} is outside 4..={most}")));
        }
        let model = load(backend, checkpoint, progress)?;
        let rows = ROWS.min(backend.info().max_rows.max(1));
        let shape = PassShape { rows, sequences: 1, outputs: rows };
        let blocks = context.div_ceil(BLOCK_TOKENS);
        let options = CacheOptions { blocks, slots: 1, kv_type };
        Ok(Self {
            cache: Cache::new(backend, &model.config, options)?,
            work: Workspace::new(backend, &model.config, shape)?,
            inputs: StepInputs::new(backend, shape, blocks)?,
            programs: HashMap::new(),
            context,
            rows,
            length: 0,
            logits: Vec::new(),
            backend,
            model,
        })
    }

    /// Longest text in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Most tokens of one [`Scorer::advance`].
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values of a row of logits.
    pub fn vocabulary(&self) -> usize {
        self.model.config.vocab_size
    }

    /// Forgets the text.
    pub fn start(&mut self) {
        self.length = 0;
    }

    /// Reads tokens; returns the logits of the last `outputs` of them, one row after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond the context or the vocabulary, [`Error::NotFinite`], device
    /// errors.
    pub fn advance(&mut self, tokens: &[TokenId], outputs: usize) -> Result<&[f32]> {
        let end = self.length + tokens.len();
        if end > self.context || tokens.len() > self.rows || outputs > tokens.len() {
            let reason =
                format!("{end} tokens, {outputs} outputs; the context is {}", self.context);
            return Err(Error::invalid("text", reason));
        }
        let vocabulary = self.vocabulary();
        if let Some(token) = tokens.iter().find(|token| token.index() >= vocabulary) {
            return Err(Error::invalid("text", format!("token {token} of {vocabulary}")));
        }
        let ids: Vec<i32> = tokens.iter().map(|token| token.0 as i32).collect();
        let blocks: Vec<i32> = (0..end.div_ceil(BLOCK_TOKENS) as i32).collect();
        let mut batch = Batch::default();
        batch.push(&ids, self.length, 0, &blocks, outputs);
        let shape = self.shape(ids.len(), outputs);
        let inputs = self.inputs.view(shape)?;
        inputs.write(self.backend, &batch)?;
        if !self.programs.contains_key(&shape) {
            let mut work = self.work.view(shape)?;
            let (model, cache) = (&self.model, &mut self.cache);
            let program =
                self.backend.record(|pass| model.forward(pass, &inputs, &mut work, cache))?;
            self.programs.insert(shape, program);
        }
        if let Some(program) = self.programs.get(&shape) {
            self.backend.submit(program)?;
        }
        self.logits.resize(outputs * vocabulary, 0.0);
        if outputs > 0 {
            let rows = self.work.logits.first_rows(outputs)?;
            self.backend.read(&rows, bytemuck::cast_slice_mut(&mut self.logits))?;
        }
        self.length = end;
        if let Some(at) = self.logits.iter().position(|logit| !logit.is_finite()) {
            let position = (end - outputs + at / vocabulary) as u32;
            let detail = format!("token {} has {}", at % vocabulary, self.logits[at]);
            return Err(Error::NotFinite { position, detail });
        }
        Ok(&self.logits)
    }

    /// Sizes that a pass is recorded for: rows as the device wants them, outputs none or all, so
    /// that there are few recordings.
    fn shape(&self, rows: usize, outputs: usize) -> PassShape {
        let buckets = &self.backend.info().row_buckets;
        let bucket = buckets.iter().copied().find(|&bucket| bucket >= rows);
        let padded = bucket.unwrap_or(rows).min(self.rows);
        let outputs = match (outputs, buckets.is_empty()) {
            (0, _) => 0,
            (outputs, true) => outputs,
            (_, false) => padded,
        };
        PassShape { rows: padded, sequences: 1, outputs }
    }

    /// Tokens per second when one is read at a time, as in decoding: `count` of them behind
    /// `prompt`.
    ///
    /// # Errors
    /// As [`Scorer::advance`].
    pub fn decode_speed(&mut self, prompt: &[TokenId], count: usize) -> Result<f64> {
        self.start();
        for chunk in prompt.chunks(self.rows) {
            self.advance(chunk, 0)?;
        }
        let last = prompt.last().copied().unwrap_or(TokenId(0));
        // The first one records its program.
        self.advance(&[last], 1)?;
        let start = Instant::now();
        for _ in 0..count {
            self.advance(&[last], 1)?;
        }
        Ok(count as f64 / start.elapsed().as_secs_f64().max(1e-9))
    }
}
