//! Whole models against stored golden data: logits at all positions, hidden states, recurrent and
//! convolution states, KV, the MTP block, greedy continuations, chunked and batched passes. Generic
//! over the backend: `open` makes a fresh one for each model.

use crate::fixtures::{Golden, MODELS, assert_close, model};
use crate::runner::{Part, Runner};
use crate::session::Session;
use crate::tolerance::Precision;
use forge_core::engine::EngineOptions;
use forge_core::kv::KvType;
use forge_core::model::MtpSource;
use forge_core::reference::kv_codec;
use forge_core::weights::Checkpoint;
use forge_core::{Backend, TokenId};
use std::path::Path;

/// Runs `test` on every model fixture that is present.
fn for_each_model(test: impl Fn(&str, &Path)) {
    for name in MODELS {
        if let Some(path) = model(name) {
            test(name, &path);
        }
    }
}

fn golden(path: &Path) -> Golden {
    Golden::open(&path.join("golden.safetensors")).unwrap()
}

fn runner<B: Backend>(open: impl Fn() -> B, path: &Path) -> Runner<B> {
    let checkpoint = Checkpoint::open(path).unwrap();
    Runner::new(open(), &checkpoint, KvType::F32).unwrap()
}

fn chunked<B: Backend>(runner: &mut Runner<B>, slot: usize, ids: &[i32], chunk: usize) -> Vec<f32> {
    runner.reset(slot);
    ids.chunks(chunk).flat_map(|ids| runner.pass(&[Part { slot, ids }], 0).unwrap()).collect()
}

/// See the name.
pub fn logits_match_at_every_position_for_every_chunking<B: Backend>(
    open: impl Fn() -> B,
    precision: &Precision,
) {
    for_each_model(|name, path| {
        let (golden, mut runner) = (golden(path), runner(&open, path));
        for case in ["short", "long"] {
            let ids = golden.ints(&format!("{case}.input_ids"));
            let expected = golden.floats(&format!("{case}.logits"));
            for chunk in [ids.len(), 65, 64, 7, 1] {
                let got = chunked(&mut runner, 0, &ids, chunk);
                let what = format!("{name} {case} in chunks of {chunk}");
                assert_close(&what, &got, &expected, precision.logits_of(name, chunk));
            }
        }
    });
}

/// See the name.
pub fn padded_passes_equal_exact_ones<B: Backend>(open: impl Fn() -> B, precision: &Precision) {
    for_each_model(|name, path| {
        let (golden, mut runner) = (golden(path), runner(&open, path));
        let ids = golden.ints("short.input_ids");
        let expected = chunked(&mut runner, 1, &ids, 64);
        runner.reset(1);
        let mut got = Vec::new();
        for ids in ids.chunks(64) {
            got.extend(runner.pass(&[Part { slot: 1, ids }], 5).unwrap());
        }
        assert_close(&format!("{name} padded"), &got, &expected, precision.shape);
    });
}

/// See the name.
pub fn hidden_states_match_after_every_layer<B: Backend>(
    open: impl Fn() -> B,
    precision: &Precision,
) {
    for_each_model(|name, path| {
        let (golden, mut runner) = (golden(path), runner(&open, path));
        let ids = golden.ints("short.input_ids");
        let expected = golden.floats("short.hidden");
        let (layers, last) = runner.hidden_states(0, &ids).unwrap();
        let size = expected.len() / layers.len();
        for (layer, got) in layers.iter().enumerate() {
            let expected = &expected[layer * size..(layer + 1) * size];
            assert_close(&format!("{name} layer {layer}"), got, expected, precision.hidden);
        }
        let expected = golden.floats("short.final_hidden");
        assert_close(&format!("{name} final"), &last, &expected, precision.hidden);
    });
}

fn compare_states<B: Backend>(
    name: &str,
    runner: &Runner<B>,
    golden: &Golden,
    case: &str,
    tolerance: f32,
) {
    for layer in 0..runner.model.layers.len() {
        let key = format!("{case}.state.{layer}");
        if !golden.has(&key) {
            continue;
        }
        let (conv, recurrent) = runner.cache.state(layer).unwrap();
        let what = format!("{name} {case} layer {layer}");
        let slot = |t| runner.read(&runner_row(t)).unwrap();
        assert_close(&what, &slot(recurrent), &golden.floats(&key), tolerance);
        let expected = golden.floats(&format!("{case}.conv.{layer}"));
        let got = slot(conv);
        let channels = expected.len() / 3;
        let got: Vec<f32> = (0..expected.len()).map(|i| got[(i % 3) * channels + i / 3]).collect();
        assert_close(&format!("{what} conv"), &got, &expected, tolerance);
    }
}

fn runner_row<B: Backend>(tensor: &forge_core::Tensor<B>) -> forge_core::Tensor<B> {
    tensor.row_range(2..3).unwrap()
}

/// See the name.
pub fn states_match_after_the_prompt_and_after_generated_tokens<B: Backend>(
    open: impl Fn() -> B,
    precision: &Precision,
) {
    for_each_model(|name, path| {
        let (golden, mut runner) = (golden(path), runner(&open, path));
        for case in ["long", "short"] {
            let ids = golden.ints(&format!("{case}.input_ids"));
            chunked(&mut runner, 2, &ids, 50);
            compare_states(name, &runner, &golden, case, precision.state);
        }
        let greedy = golden.ints("short.greedy");
        let expected = golden.floats("short.greedy_logits");
        let vocabulary = expected.len() / greedy.len();
        for (i, id) in greedy[..31].iter().enumerate() {
            let got = runner.pass(&[Part { slot: 2, ids: &[*id] }], 0).unwrap();
            let expected = &expected[(i + 1) * vocabulary..(i + 2) * vocabulary];
            let tolerance = precision.logits(name);
            assert_close(&format!("{name} step {i}"), &got, expected, tolerance);
        }
        compare_states(name, &runner, &golden, "short.after31", 2.0 * precision.state);
    });
}

/// See the name.
pub fn keys_and_values_match<B: Backend>(open: impl Fn() -> B, precision: &Precision) {
    for_each_model(|name, path| {
        let (golden, mut runner) = (golden(path), runner(&open, path));
        let ids = golden.ints("short.input_ids");
        chunked(&mut runner, 3, &ids, 40);
        for layer in 0..runner.model.layers.len() {
            let Some(pool) = runner.cache.pool(layer) else { continue };
            let pages = runner.read_bytes(&pool.pages).unwrap();
            for (plane, letter) in ["k", "v"].into_iter().enumerate() {
                let expected = golden.floats(&format!("short.{letter}.{layer}"));
                let dim = pool.layout.head_dim;
                let mut got = Vec::new();
                for head in 0..pool.layout.kv_heads {
                    for position in 0..ids.len() {
                        let block = Runner::<B>::blocks(3)[position / 16] as usize;
                        let bytes = pool.layout.block_bytes();
                        let page = &pages[block * bytes..(block + 1) * bytes];
                        let mut values = vec![0.0; dim];
                        kv_codec::decode(
                            &pool.layout,
                            page,
                            plane,
                            head,
                            position % 16,
                            &mut values,
                        );
                        got.extend(values);
                    }
                }
                let what = format!("{name} {letter} of layer {layer}");
                assert_close(&what, &got, &expected, precision.state);
            }
        }
    });
}

/// See the name.
pub fn the_mtp_block_matches_at_every_position_and_chained<B: Backend>(
    open: impl Fn() -> B,
    precision: &Precision,
) {
    for_each_model(|name, path| {
        let golden = golden(path);
        if !golden.has("mtp.short.logits") {
            return;
        }
        let mut runner = runner(&open, path);
        let ids = golden.ints("short.input_ids");
        chunked(&mut runner, 0, &ids, ids.len());
        let mut next: Vec<i32> = ids[1..].to_vec();
        next.push(golden.ints("short.greedy")[0]);
        let (logits, hidden) = runner.mtp_pass(0, 0, &next, MtpSource::Main).unwrap();
        assert_close(name, &logits, &golden.floats("mtp.short.logits"), precision.logits(name));
        assert_close(name, &hidden, &golden.floats("mtp.short.hidden"), precision.hidden);

        // The chain continues from the last row: its hidden state moves to row 0 of the workspace.
        let tokens = golden.ints("mtp.chain.tokens");
        let expected = golden.floats("mtp.chain.logits");
        let vocabulary = expected.len() / tokens.len();
        let width = hidden.len() / ids.len();
        assert_close(
            name,
            &logits[(ids.len() - 1) * vocabulary..],
            &expected[..vocabulary],
            precision.logits(name),
        );
        let last = &hidden[(ids.len() - 1) * width..];
        let row = runner.work.mtp_hidden.first_rows(1).unwrap();
        runner.backend.write(&row, bytemuck::cast_slice(last)).unwrap();
        for (i, token) in tokens[..3].iter().enumerate() {
            let start = ids.len() + i;
            let (logits, _) = runner.mtp_pass(0, start, &[*token], MtpSource::Chain).unwrap();
            let expected = &expected[(i + 1) * vocabulary..(i + 2) * vocabulary];
            assert_close(&format!("{name} chain {i}"), &logits, expected, precision.logits(name));
        }
    });
}

/// Greedy tokens of the engine.
fn greedy<B: Backend>(
    backend: B,
    checkpoint: &Checkpoint,
    prompts: &[&[i32]],
    count: usize,
    max_rows: usize,
) -> Vec<Vec<i32>> {
    let options = EngineOptions {
        context: Some(1024),
        slots: 2,
        kv_type: KvType::F32,
        max_rows: Some(max_rows),
        ..EngineOptions::default()
    };
    let mut session = Session::new(backend, checkpoint, &options).unwrap();
    let prompts: Vec<Vec<TokenId>> = prompts
        .iter()
        .map(|prompt| prompt.iter().map(|id| TokenId(*id as u32)).collect())
        .collect();
    let prompts: Vec<_> = prompts.iter().map(|prompt| (prompt.as_slice(), count)).collect();
    let answers = session.greedy(&prompts).unwrap();
    answers.into_iter().map(|a| a.tokens.iter().map(|t| t.0 as i32).collect()).collect()
}

/// See the name.
pub fn the_engine_continues_greedily_as_recorded_alone_and_in_a_batch<B: Backend>(
    open: impl Fn() -> B,
    _precision: &Precision,
) {
    for_each_model(|name, path| {
        let golden = golden(path);
        let checkpoint = Checkpoint::open(path).unwrap();
        let (short, long) = (golden.ints("short.input_ids"), golden.ints("long.input_ids"));
        let expected =
            [golden.ints("short.greedy"), golden.ints("long.greedy"), golden.ints("short.greedy")];
        for max_rows in [16, 300] {
            let got = greedy(open(), &checkpoint, &[&short, &long, &short], 32, max_rows);
            assert_eq!(got, expected, "{name} with {max_rows} rows");
        }
    });
}

/// See the name.
pub fn a_ragged_batch_equals_each_alone<B: Backend>(open: impl Fn() -> B, precision: &Precision) {
    for_each_model(|name, path| {
        let (golden, mut runner) = (golden(path), runner(&open, path));
        let ids = golden.ints("long.input_ids");
        let lengths = [1usize, 63, 64, 101];
        let alone: Vec<Vec<f32>> =
            (0..4).map(|s| chunked(&mut runner, s, &ids[s * 20..][..lengths[s]], 300)).collect();
        let vocabulary = alone[0].len();
        // Two passes, so that the second starts in the middle of every sequence but the first.
        (0..4).for_each(|s| runner.reset(s));
        let mut together = vec![Vec::new(); 4];
        for half in 0..2 {
            let parts: Vec<Part<'_>> = (0..4)
                .map(|s| {
                    let all = &ids[s * 20..][..lengths[s]];
                    let (first, second) = all.split_at(all.len().div_ceil(2));
                    Part { slot: s, ids: if half == 0 { first } else { second } }
                })
                .filter(|part| !part.ids.is_empty())
                .collect();
            let logits = runner.pass(&parts, 0).unwrap();
            let mut at = 0;
            for part in &parts {
                let len = part.ids.len() * vocabulary;
                together[part.slot].extend_from_slice(&logits[at..at + len]);
                at += len;
            }
        }
        for s in 0..4 {
            assert_close(&format!("{name} sequence {s}"), &together[s], &alone[s], precision.shape);
        }
    });
}

/// See the name.
pub fn quantised_files_match_their_dequantised_goldens<B: Backend>(
    open: impl Fn() -> B,
    precision: &Precision,
) {
    for_each_model(|name, path| {
        let golden = golden(path);
        let quantised = Golden::open(&path.join("gguf_golden.safetensors")).unwrap();
        let ids = golden.ints("short.input_ids");
        for entry in std::fs::read_dir(path).unwrap() {
            let file = entry.unwrap().path();
            let stem = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let Some(kind) = stem.strip_prefix("model-") else { continue };
            let checkpoint = Checkpoint::open(&file).unwrap();
            let what = format!("{name} {kind}");
            let exact = matches!(kind, "BF16" | "F16");
            let tolerance =
                if exact { precision.logits(name) } else { precision.quantised_logits(name) };
            let mut runner = Runner::new(open(), &checkpoint, KvType::F32).unwrap();
            let expected = quantised.floats(&format!("{kind}.short.logits"));
            let logits = chunked(&mut runner, 0, &ids, 300);
            assert_close(&what, &logits, &expected, tolerance);
            let expected = quantised.ints(&format!("{kind}.short.greedy"));
            let got = greedy(open(), &checkpoint, &[&ids], expected.len(), 300);
            assert_eq!(got[0], expected, "{what}");
            let key = format!("{kind}.mtp.short.logits");
            if quantised.has(&key) {
                let mut next: Vec<i32> = ids[1..].to_vec();
                next.push(expected[0]);
                let (logits, _) = runner.mtp_pass(0, 0, &next, MtpSource::Main).unwrap();
                assert_close(&format!("{what} mtp"), &logits, &quantised.floats(&key), tolerance);
            }
        }
    });
}
