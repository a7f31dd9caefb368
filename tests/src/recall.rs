//! Needle and key-value recall of forge-tiny, as exact answers by greedy decoding.

use crate::fixtures::{embedded, json, list, own, text, tokenizer};
use crate::session::Session;
use forge_core::TokenId;
use forge_core::backend::Backend;
use forge_core::engine::EngineOptions;
use forge_core::tokenizer::SpecialTokens;
use std::time::Instant;

/// Answers that may differ from the recorded count.
const ALLOWED: i64 = 2;

struct Case {
    /// Right answer by the NumPy reference.
    reference: bool,
    prompt: Vec<TokenId>,
    answer: Vec<TokenId>,
}

/// The cases of one kind and length. `tests/tools/make_recall.py` made them.
fn cases(kind: &str, length: usize) -> Vec<Case> {
    let tokenizer = tokenizer(&embedded());
    let file = json(&own("tests/fixtures/forge-tiny/recall.json"));
    let encode = |text: &str| tokenizer.encode(text, SpecialTokens::Parse).unwrap();
    list(&file["cases"])
        .iter()
        .filter(|c| c["kind"] == kind && c["length"] == length)
        .map(|c| Case {
            reference: c["reference_exact"].as_bool().unwrap(),
            prompt: encode(text(&c["prompt"])),
            answer: encode(&format!("{}<|im_end|>", text(&c["answer"]))),
        })
        .collect()
}

/// Answers that the training folder counted as right.
fn recorded(kind: &str, length: usize) -> i64 {
    let file = json(&own("tests/fixtures/forge-tiny/eval.json"));
    let result = &file["recall"][length.to_string()][kind];
    let samples = result["samples"].as_f64().unwrap();
    (result["accuracy"].as_f64().unwrap() * samples).round() as i64
}

fn check<B: Backend>(session: &mut Session<B>, kind: &str, length: usize) {
    let cases = cases(kind, length);
    let prompts: Vec<_> = cases.iter().map(|c| (c.prompt.as_slice(), c.answer.len())).collect();
    let start = Instant::now();
    let answers = session.greedy(&prompts).unwrap();
    let (mut right, mut as_reference) = (0, 0);
    for (case, answer) in cases.iter().zip(answers) {
        answer.end.unwrap();
        let exact = answer.tokens == case.answer;
        right += i64::from(exact);
        as_reference += usize::from(exact == case.reference);
    }
    let tokens: usize = cases.iter().map(|c| c.prompt.len()).sum();
    let (count, expected) = (cases.len(), recorded(kind, length));
    println!(
        "{kind} at {length}: {right} of {count} right, {expected} recorded, {as_reference} as the \
         reference; {tokens} tokens in {:.1} s",
        start.elapsed().as_secs_f64(),
    );
    assert!((right - expected).abs() <= ALLOWED, "{kind} at {length}: {right}, not {expected}");
    // 8-bit weights and 16-bit keys may turn a close case, not more.
    assert!(count - as_reference <= ALLOWED as usize, "{kind} at {length}: unlike the reference");
}

fn check_length<B: Backend>(open: impl Fn() -> B, length: usize) {
    let options = EngineOptions { context: Some(2304), slots: 4, ..EngineOptions::default() };
    let mut session = Session::new(open(), &embedded(), &options).unwrap();
    for kind in ["needle", "key_value"] {
        check(&mut session, kind, length);
    }
}

/// See the name.
pub fn recall_at_512_tokens<B: Backend>(open: impl Fn() -> B) {
    check_length(open, 512);
}

/// See the name.
pub fn recall_at_2048_tokens<B: Backend>(open: impl Fn() -> B) {
    check_length(open, 2048);
}
