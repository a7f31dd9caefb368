//! What a user may do wrong, at the level of the engine: each is an error that names the fault, and
//! the engine goes on.

use crate::fixtures::{Golden, model};
use crate::session::{Answer, Session};
use forge_core::backend::Backend;
use forge_core::engine::{EngineOptions, FinishReason};
use forge_core::kv::KvType;
use forge_core::weights::Checkpoint;
use forge_core::weights::host::HostTensor;
use forge_core::{Error, TokenId};
use std::path::Path;

/// Tokens to generate.
const COUNT: usize = 8;

const FIXTURES: [&str; 4] = ["hybrid-dense-tied", "hybrid-moe", "qwen3-dense", "llama-dense"];

fn session<B: Backend>(backend: B, checkpoint: &Checkpoint, slots: usize) -> Session<B> {
    let options = EngineOptions {
        context: Some(128),
        slots,
        kv_type: KvType::F32,
        ..EngineOptions::default()
    };
    Session::new(backend, checkpoint, &options).unwrap()
}

/// The beginning of the fixture's short prompt.
fn prompt(path: &Path) -> Vec<TokenId> {
    let ids = Golden::open(&path.join("golden.safetensors")).unwrap().ints("short.input_ids");
    ids.into_iter().take(40).map(|id| TokenId(id as u32)).collect()
}

/// Puts a NaN into the row `row` of a matrix, which becomes f32.
fn poison(checkpoint: &mut Checkpoint, name: &str, row: usize) {
    let tensor = &checkpoint.tensors[name];
    let mut values = tensor.to_f32().unwrap();
    values[row * tensor.columns() + 3] = f32::NAN;
    let tensor = HostTensor::from_f32(name, tensor.shape.clone(), &values).unwrap();
    checkpoint.tensors.insert(name.to_owned(), tensor);
}

fn assert_not_finite(what: &str, answer: &Answer) {
    assert!(matches!(answer.end, Err(Error::NotFinite { .. })), "{what}: {answer:?}");
    assert!(answer.tokens.is_empty(), "{what}: {answer:?}");
}

fn assert_finished(what: &str, answer: &Answer, tokens: &[TokenId]) {
    let Ok((reason, _)) = answer.end else { panic!("{what}: {answer:?}") };
    assert_eq!(reason, FinishReason::Length, "{what}");
    assert_eq!(answer.tokens, tokens, "{what}");
}

/// A sequence that meets a NaN fails; the others of its batch, and later ones in its slot and
/// blocks, are as if it had never been.
pub fn a_nan_fails_its_own_sequence_only<B: Backend>(open: impl Fn() -> B) {
    for name in FIXTURES {
        let Some(path) = model(name) else { continue };
        let mut checkpoint = Checkpoint::open(&path).unwrap();
        if checkpoint.config.tied_embeddings {
            // A head of its own keeps the NaN out of everybody's logits.
            checkpoint.config.tied_embeddings = false;
            let head = checkpoint.tensors["embed"].clone();
            checkpoint.tensors.insert("lm_head".into(), head);
        }
        let clean = prompt(&path);
        let answers = session(open(), &checkpoint, 2).greedy(&[(&clean, COUNT)]).unwrap();
        let expected = &answers[0].tokens;
        let unused = |id: &TokenId| !clean.contains(id) && !expected.contains(id);
        let token = (0..).map(TokenId).find(unused).unwrap();
        poison(&mut checkpoint, "embed", token.index());
        let mut poisoned = clean.clone();
        poisoned[20] = token;
        let (clean, poisoned) = ((&clean[..], COUNT), (&poisoned[..], COUNT));
        for slots in [1, 2] {
            let mut session = session(open(), &checkpoint, slots);
            for round in 0..2 {
                let what = format!("{name}, {slots} slots, round {round}");
                let answers = session.greedy(&[clean, poisoned, clean]).unwrap();
                assert_finished(&what, &answers[0], expected);
                assert_not_finite(&what, &answers[1]);
                assert_finished(&what, &answers[2], expected);
            }
        }
    }
}

/// A NaN in a matrix that everybody needs fails every sequence, and no device.
pub fn a_nan_in_a_matrix_fails_every_sequence<B: Backend>(open: impl Fn() -> B) {
    for name in FIXTURES {
        let Some(path) = model(name) else { continue };
        let mut checkpoint = Checkpoint::open(&path).unwrap();
        let dense = checkpoint.tensors.contains_key("layers.0.ffn.down");
        let matrix = if dense { "layers.0.ffn.down" } else { "layers.0.moe.shared.down" };
        poison(&mut checkpoint, matrix, 5);
        let clean = prompt(&path);
        let mut session = session(open(), &checkpoint, 2);
        for answer in session.greedy(&[(&clean, COUNT), (&clean[..9], COUNT)]).unwrap() {
            assert_not_finite(name, &answer);
        }
    }
}

/// Prompts that cannot be run are refused when they are queued.
pub fn impossible_prompts_are_refused<B: Backend>(open: impl Fn() -> B) {
    let path = model("llama-dense").unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let mut session = session(open(), &checkpoint, 1);
    let vocabulary = checkpoint.config.vocab_size as u32;
    let refused = [
        (vec![], "prompt: is empty".to_owned()),
        (
            vec![TokenId(1); 128],
            "prompt: 128 tokens do not fit a context of 128 with room for an answer".to_owned(),
        ),
        (
            vec![TokenId(1), TokenId(vocabulary)],
            format!("prompt: token {vocabulary} of {vocabulary}"),
        ),
    ];
    for (prompt, message) in refused {
        let error = session.greedy(&[(&prompt, COUNT)]).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
    // The longest prompt that leaves room for a token; the engine still works.
    let answer = session.greedy(&[(&[TokenId(1); 127], COUNT)]).unwrap().remove(0);
    assert_eq!(answer.end.unwrap().0, FinishReason::Context);
    assert_eq!(answer.tokens.len(), 1);
}
