//! Measures the importance of columns: a text runs through the model on the CPU, and the squares of
//! the inputs of every matrix are averaged.

use super::importance::Importance;
use super::observe::Observed;
use crate::backend::Weight;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::kv::{BLOCK_TOKENS, KvType};
use crate::model::{
    Batch, Cache, CacheOptions, Model, MtpSource, PassShape, StepInputs, Workspace, load,
};
use crate::reference::Cpu;
use crate::weights::Checkpoint;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Tokens that run together; each window begins a new text.
const WINDOW: usize = 256;
/// Rows of a window that go through the head, which is large and sees the same kind of input.
const HEAD_ROWS: usize = 32;

/// Sums of squares of one matrix.
#[derive(Default)]
struct Sums {
    squares: Vec<f64>,
    /// Rows seen, of experts each.
    rows: Vec<u64>,
}

/// Runs `tokens` through the model. `progress` gets the tokens done before each window, and may end
/// it. `text` is the name of where the tokens come from.
///
/// # Errors
/// [`Error::Invalid`] for no tokens, tokens outside the vocabulary, or an end by `progress`; those
/// of the model.
pub fn calibrate(
    checkpoint: &Checkpoint,
    tokens: &[TokenId],
    text: &str,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<Importance> {
    let vocabulary = checkpoint.config.vocab_size;
    if tokens.is_empty() {
        return Err(Error::invalid("calibration", format!("{text} has no tokens")));
    }
    if let Some(token) = tokens.iter().find(|token| token.index() >= vocabulary) {
        return Err(Error::invalid("calibration", format!("token {token} of {vocabulary}")));
    }
    let mut run = Run::new(checkpoint)?;
    for (index, window) in tokens.chunks(WINDOW).enumerate() {
        if progress(index * WINDOW).is_break() {
            return Err(Error::invalid("calibration", "interrupted"));
        }
        run.window(window)?;
    }
    Ok(Importance { text: text.to_owned(), columns: run.means() })
}

struct Run {
    backend: Cpu,
    model: Model<Cpu>,
    cache: Cache<Cpu>,
    work: Workspace<Cpu>,
    inputs: StepInputs<Cpu>,
    /// Canonical names by where a tensor's bytes lie, which copies of its handle share.
    names: BTreeMap<usize, String>,
    sums: BTreeMap<String, Sums>,
}

fn address(data: &[u8]) -> usize {
    data.as_ptr() as usize
}

impl Run {
    fn new(checkpoint: &Checkpoint) -> Result<Self> {
        let backend = Cpu::new();
        let model = load(&backend, checkpoint, &mut |_| ())?;
        let shape = PassShape { rows: WINDOW, sequences: 1, outputs: HEAD_ROWS };
        let blocks = WINDOW.div_ceil(BLOCK_TOKENS);
        let options = CacheOptions { blocks, slots: 1, kv_type: KvType::F32 };
        let tensors = checkpoint.tensors.iter();
        let names = tensors.map(|(name, t)| (address(t.data.as_slice()), name.clone())).collect();
        Ok(Self {
            cache: Cache::new(&backend, &model.config, options)?,
            work: Workspace::new(&backend, &model.config, shape)?,
            inputs: StepInputs::new(&backend, shape, blocks)?,
            names,
            sums: BTreeMap::new(),
            backend,
            model,
        })
    }

    /// Runs one window through the model and, where there is one, through its draft block.
    fn window(&mut self, tokens: &[TokenId]) -> Result<()> {
        let ids: Vec<i32> = tokens.iter().map(|token| token.0 as i32).collect();
        self.pass(&ids, false)?;
        if self.model.mtp.is_some() && ids.len() > 1 {
            self.pass(&ids[1..], true)?;
        }
        Ok(())
    }

    fn pass(&mut self, ids: &[i32], draft: bool) -> Result<()> {
        let blocks: Vec<i32> = (0..ids.len().div_ceil(BLOCK_TOKENS) as i32).collect();
        let outputs = ids.len().min(HEAD_ROWS);
        let mut batch = Batch::default();
        batch.push(ids, 0, 0, &blocks, outputs);
        let shape = PassShape { rows: ids.len(), sequences: 1, outputs };
        let inputs = self.inputs.view(shape)?;
        let mut work = self.work.view(shape)?;
        inputs.write(&self.backend, &batch)?;
        let Self { backend, model, cache, names, sums, .. } = self;
        let mut observer = |weight: &Weight<Cpu>, rows: &[f32], experts: Option<&[i32]>| {
            for part in weight.storage.iter() {
                if let Some(name) = names.get(&address(part.data.as_slice())) {
                    sums.entry(name.clone()).or_default().add(weight, rows, experts);
                }
            }
            Ok(())
        };
        let mut ops = Observed::new(backend, &mut observer);
        if draft {
            model.mtp_forward(&mut ops, MtpSource::Main, &inputs, &mut work, cache)
        } else {
            model.forward(&mut ops, &inputs, &mut work, cache)
        }
    }

    fn means(self) -> BTreeMap<String, Vec<f32>> {
        let means = self.sums.into_iter().map(|(name, sums)| (name, sums.means()));
        means.filter(|(_, means)| means.iter().all(|mean| mean.is_finite())).collect()
    }
}

impl Sums {
    fn add(&mut self, weight: &Weight<Cpu>, rows: &[f32], experts: Option<&[i32]>) {
        let columns = weight.columns.max(1);
        self.squares.resize(columns * weight.experts, 0.0);
        self.rows.resize(weight.experts, 0);
        for (at, row) in rows.chunks(columns).enumerate() {
            let expert = experts.and_then(|experts| experts.get(at)).map_or(0, |&expert| expert);
            let Ok(expert) = usize::try_from(expert) else { continue };
            let Some(count) = self.rows.get_mut(expert) else { continue };
            *count += 1;
            let squares = &mut self.squares[expert * columns..(expert + 1) * columns];
            for (square, value) in squares.iter_mut().zip(row) {
                *square += f64::from(*value).powi(2);
            }
        }
    }

    /// Mean squares; experts that no token chose count all columns the same.
    fn means(self) -> Vec<f32> {
        let columns = (self.squares.len() / self.rows.len().max(1)).max(1);
        let experts = self.squares.chunks(columns).zip(&self.rows);
        let means = experts.flat_map(|(squares, &rows)| {
            squares.iter().map(move |&sum| if rows == 0 { 1.0 } else { (sum / rows as f64) as f32 })
        });
        means.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::samples::fixture;

    fn tokens(count: u32) -> Vec<TokenId> {
        (0..count).map(|at| TokenId((at * 37 + 11) % 500)).collect()
    }

    #[test]
    fn every_matrix_is_seen() {
        let source = Checkpoint::open(fixture("hybrid-dense-tied")).unwrap();
        let mut calls = Vec::new();
        let importance = calibrate(&source, &tokens(300), "t", &mut |done| {
            calls.push(done);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(calls, [0, 256]);
        for (name, tensor) in &source.tensors {
            if crate::weights::canonical::role(name) != crate::weights::canonical::Role::Matrix {
                continue;
            }
            let means = importance.columns.get(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(means.len(), tensor.columns(), "{name}");
            assert!(means.iter().all(|mean| mean.is_finite() && *mean >= 0.0), "{name}");
            assert!(means.iter().any(|mean| *mean > 0.0), "{name}");
        }
        // What shares its input is worth the same.
        let of = |name: &str| &importance.columns[name];
        assert_eq!(of("layers.3.attn.q"), of("layers.3.attn.v"));
        assert_ne!(of("layers.3.attn.q"), of("layers.3.ffn.up"));
    }

    #[test]
    fn an_input_of_known_size_has_its_square() {
        let source = Checkpoint::open(fixture("qwen3-dense")).unwrap();
        let importance =
            calibrate(&source, &tokens(40), "t", &mut |_| ControlFlow::Continue(())).unwrap();
        // Behind a norm the mean square over columns is that of the norm's weights.
        let norm = source.tensors["layers.0.attn_norm"].to_f32().unwrap();
        let means = &importance.columns["layers.0.attn.q"];
        let unweighted: f32 = means.iter().zip(&norm).map(|(mean, w)| mean / (w * w)).sum();
        assert!((unweighted / norm.len() as f32 - 1.0).abs() < 0.02, "{unweighted}");
    }

    #[test]
    fn bad_tokens_are_refused() {
        let source = Checkpoint::open(fixture("qwen3-dense")).unwrap();
        let run = |tokens: &[TokenId]| {
            calibrate(&source, tokens, "t", &mut |_| ControlFlow::Break(()))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(run(&[]), "calibration: t has no tokens");
        assert!(run(&[TokenId(99_999)]).contains("token 99999"));
        assert_eq!(run(&[TokenId(1)]), "calibration: interrupted");
    }
}
