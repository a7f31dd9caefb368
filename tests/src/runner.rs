//! Runs passes of a model without the engine, so that a test decides every row.

use forge_core::backend::Backend;
use forge_core::kv::{BLOCK_TOKENS, KvType};
use forge_core::model::{
    Batch, Cache, CacheOptions, Model, MtpSource, PassShape, StepInputs, Workspace, load,
};
use forge_core::tensor::Tensor;
use forge_core::weights::Checkpoint;
use forge_core::{DType, Result};

/// Blocks that a sequence owns: sequence `s` has blocks `s * n ..`, in reverse order so that
/// block ids and positions differ.
const BLOCKS_PER_SEQUENCE: usize = 32;

/// A model with cache and workspace for up to `SLOTS` sequences.
pub struct Runner<B: Backend> {
    /// Backend.
    pub backend: B,
    /// Model.
    pub model: Model<B>,
    /// States and pools.
    pub cache: Cache<B>,
    /// Workspace.
    pub work: Workspace<B>,
    inputs: StepInputs<B>,
    /// Tokens computed per slot.
    lengths: Vec<usize>,
}

/// Sequences that a runner holds.
pub const SLOTS: usize = 4;
/// Most rows of a pass.
pub const MAX_ROWS: usize = 512;

/// Rows of one sequence in a pass.
pub struct Part<'a> {
    /// Slot.
    pub slot: usize,
    /// Tokens.
    pub ids: &'a [i32],
}

impl<B: Backend> Runner<B> {
    /// Loads a checkpoint.
    ///
    /// # Errors
    /// Those of the loader.
    pub fn new(backend: B, checkpoint: &Checkpoint, kv_type: KvType) -> Result<Self> {
        let model = load(&backend, checkpoint, &mut |_| ())?;
        let shape = PassShape { rows: MAX_ROWS, sequences: SLOTS, outputs: MAX_ROWS };
        let options = CacheOptions { blocks: SLOTS * BLOCKS_PER_SEQUENCE, slots: SLOTS, kv_type };
        Ok(Self {
            cache: Cache::new(&backend, &model.config, options)?,
            work: Workspace::new(&backend, &model.config, shape)?,
            inputs: StepInputs::new(&backend, shape, BLOCKS_PER_SEQUENCE)?,
            lengths: vec![0; SLOTS],
            backend,
            model,
        })
    }

    /// Forgets a sequence. Its state stays in the slot on purpose: a fresh sequence must not see it.
    pub fn reset(&mut self, slot: usize) {
        self.lengths[slot] = 0;
    }

    /// Blocks of a slot, in order of positions.
    pub fn blocks(slot: usize) -> Vec<i32> {
        let first = slot * BLOCKS_PER_SEQUENCE;
        (first..first + BLOCKS_PER_SEQUENCE).rev().map(|b| b as i32).collect()
    }

    fn batch(&self, parts: &[Part<'_>]) -> Batch {
        let mut batch = Batch::default();
        for part in parts {
            let start = self.lengths[part.slot];
            let blocks = (start + part.ids.len()).div_ceil(BLOCK_TOKENS);
            let blocks = &Self::blocks(part.slot)[..blocks];
            batch.push(part.ids, start, part.slot, blocks, part.ids.len());
        }
        batch
    }

    fn shape(batch: &Batch, padding: usize) -> PassShape {
        PassShape {
            rows: batch.ids.len() + padding,
            sequences: (batch.sequences.len() + padding.min(1)).min(SLOTS),
            outputs: batch.out_rows.len(),
        }
    }

    /// One pass over the parts, padded by `padding` rows; returns the logits of all rows.
    ///
    /// # Errors
    /// Device errors.
    pub fn pass(&mut self, parts: &[Part<'_>], padding: usize) -> Result<Vec<f32>> {
        let batch = self.batch(parts);
        let shape = Self::shape(&batch, padding);
        let inputs = self.inputs.view(shape)?;
        let mut work = self.work.view(shape)?;
        let (model, cache) = (&self.model, &mut self.cache);
        let program = self.backend.record(|pass| model.forward(pass, &inputs, &mut work, cache))?;
        inputs.write(&self.backend, &batch)?;
        self.backend.submit(&program)?;
        for part in parts {
            self.lengths[part.slot] += part.ids.len();
        }
        self.read(&work.logits)
    }

    /// One pass of the MTP block over rows `start..` of a slot: `next_ids[i]` follows row
    /// `start + i`. Returns logits and hidden states of all rows.
    ///
    /// # Errors
    /// Device errors.
    pub fn mtp_pass(
        &mut self,
        slot: usize,
        start: usize,
        next_ids: &[i32],
        source: MtpSource,
    ) -> Result<(Vec<f32>, Vec<f32>)> {
        let mut batch = Batch::default();
        let blocks = (start + next_ids.len()).div_ceil(BLOCK_TOKENS);
        batch.push(next_ids, start, slot, &Self::blocks(slot)[..blocks], next_ids.len());
        let shape = Self::shape(&batch, 0);
        let inputs = self.inputs.view(shape)?;
        let mut work = self.work.view(shape)?;
        let (model, cache) = (&self.model, &mut self.cache);
        let program = self
            .backend
            .record(|pass| model.mtp_forward(pass, source, &inputs, &mut work, cache))?;
        inputs.write(&self.backend, &batch)?;
        self.backend.submit(&program)?;
        Ok((self.read(&work.logits)?, self.read(&work.mtp_hidden)?))
    }

    /// Residual stream after each layer, `[layers][rows * H]`, and the final hidden states.
    ///
    /// # Errors
    /// Device errors.
    pub fn hidden_states(&mut self, slot: usize, ids: &[i32]) -> Result<(Vec<Vec<f32>>, Vec<f32>)> {
        let batch = self.batch(&[Part { slot, ids }]);
        let shape = Self::shape(&batch, 0);
        let inputs = self.inputs.view(shape)?;
        let mut work = self.work.view(shape)?;
        inputs.write(&self.backend, &batch)?;
        let (model, cache) = (&self.model, &mut self.cache);
        let embed = self.backend.record(|pass| model.embed(pass, &inputs, &mut work))?;
        self.backend.submit(&embed)?;
        let mut layers = Vec::new();
        for layer in 0..model.layers.len() {
            let program =
                self.backend.record(|pass| model.layer(pass, layer, &inputs, &mut work, cache))?;
            self.backend.submit(&program)?;
            let (mut x, delta) = (read(&self.backend, &work.x)?, read(&self.backend, &work.delta)?);
            x.iter_mut().zip(delta).for_each(|(x, d)| *x += d);
            layers.push(x);
        }
        let norm = self.backend.record(|pass| model.final_norm(pass, &mut work))?;
        self.backend.submit(&norm)?;
        self.lengths[slot] += ids.len();
        Ok((layers, read(&self.backend, &work.hidden)?))
    }

    /// All values of a contiguous f32 tensor.
    ///
    /// # Errors
    /// Device errors.
    pub fn read(&self, tensor: &Tensor<B>) -> Result<Vec<f32>> {
        read(&self.backend, tensor)
    }

    /// All bytes of a contiguous byte tensor.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_bytes(&self, tensor: &Tensor<B>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; tensor.shape.len() * tensor.dtype.bytes()];
        self.backend.read(tensor, &mut bytes)?;
        Ok(bytes)
    }
}

/// All values of a contiguous f32 tensor.
///
/// # Errors
/// Device errors.
pub fn read<B: Backend>(backend: &B, tensor: &Tensor<B>) -> Result<Vec<f32>> {
    debug_assert_eq!(tensor.dtype, DType::F32);
    let mut values = vec![0f32; tensor.shape.len()];
    backend.read(tensor, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}
