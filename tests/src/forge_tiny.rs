//! forge-tiny against the greedy continuations that its training folder recorded in f32.

use crate::fixtures::{embedded, json, list, numbers, own, shared, text, token_ids};
use crate::runner::{Part, Runner};
use crate::session::Session;
use crate::tolerance::Precision;
use forge_core::TokenId;
use forge_core::backend::Backend;
use forge_core::engine::EngineOptions;
use forge_core::kv::KvType;
use forge_core::weights::Checkpoint;

/// Cases whose every margin is at least 0.38: no storage of 8 bits or more may change them.
const CERTAIN: [&str; 3] = ["copy", "math_think", "code_rust"];

/// Largest change of a margin by 8-bit weights: 0.35 measured over the ten cases.
const EIGHT_BIT_MARGIN: f32 = 0.5;

/// A recorded continuation.
pub struct Case {
    /// Name.
    pub name: String,
    /// Prompt.
    pub prompt: Vec<TokenId>,
    /// Greedy continuation.
    pub output: Vec<TokenId>,
    /// Best logit less the second best, for each token of the continuation.
    pub margins: Vec<f32>,
}

/// The recorded continuations.
pub fn cases() -> Vec<Case> {
    let golden = json(&own("tests/fixtures/forge-tiny/golden.json"));
    let case = |case: &serde_json::Value| Case {
        name: text(&case["name"]).to_owned(),
        prompt: token_ids(&case["prompt_ids"]),
        output: token_ids(&case["output_ids"]),
        margins: numbers(&case["margins"]),
    };
    list(&golden["cases"]).iter().map(case).collect()
}

/// Fails unless `got` equals `expected` up to the first token whose margin is below `least`.
///
/// # Panics
/// If it does not.
pub fn assert_equal_where_certain(
    what: &str,
    got: &[TokenId],
    expected: &[TokenId],
    margins: &[f32],
    least: f32,
) {
    let certain = margins.iter().position(|m| *m < least).unwrap_or(margins.len());
    let same = got.iter().zip(expected).take_while(|(got, expected)| got == expected).count();
    println!("{what}: {same} of {} tokens agree, {certain} must", expected.len());
    assert!(same >= certain, "{what}: token {same} is {:?}", got.get(same));
}

fn check_continuations<B: Backend>(backend: B, checkpoint: &Checkpoint, margin: f32) {
    let options = EngineOptions {
        context: Some(512),
        slots: 4,
        kv_type: KvType::F32,
        ..EngineOptions::default()
    };
    let mut session = Session::new(backend, checkpoint, &options).unwrap();
    let cases = cases();
    let prompts: Vec<_> = cases.iter().map(|c| (c.prompt.as_slice(), c.output.len())).collect();
    for (case, answer) in cases.iter().zip(session.greedy(&prompts).unwrap()) {
        answer.end.unwrap();
        let Case { name, output, margins, .. } = case;
        let margin = if CERTAIN.contains(&name.as_str()) { 0.0 } else { margin };
        assert_equal_where_certain(name, &answer.tokens, output, margins, margin);
    }
}

/// Runs a prompt with its recorded continuation as input; returns the largest difference of a
/// margin. The margin of a token that is not the best is negative, so a wrong one counts in full.
///
/// # Panics
/// If the pass fails.
pub fn largest_margin_change<B: Backend>(
    runner: &mut Runner<B>,
    prompt: &[TokenId],
    output: &[TokenId],
    margins: &[f32],
) -> f32 {
    let ids: Vec<i32> = prompt.iter().chain(output).map(|t| t.0 as i32).collect();
    let ids = &ids[..ids.len() - 1];
    runner.reset(0);
    let logits = runner.pass(&[Part { slot: 0, ids }], 0).unwrap();
    let rows = logits.chunks(logits.len() / ids.len()).skip(prompt.len() - 1);
    let mut largest = 0f32;
    for ((row, token), expected) in rows.zip(output).zip(margins) {
        let others = row.iter().enumerate().filter(|(i, _)| *i != token.index());
        let second = others.map(|(_, value)| *value).fold(f32::NEG_INFINITY, f32::max);
        largest = largest.max((row[token.index()] - second - expected).abs());
    }
    largest
}

/// Fails if a recorded margin changes by more than `tolerance`.
fn check_margins<B: Backend>(backend: B, checkpoint: &Checkpoint, tolerance: f32) {
    let mut runner = Runner::new(backend, checkpoint, KvType::F32).unwrap();
    for case in cases() {
        let Case { name, prompt, output, margins } = case;
        let change = largest_margin_change(&mut runner, &prompt, &output, &margins);
        println!("{name}: margins change by {change:.4} at most");
        assert!(change <= tolerance, "{name}: margins change by {change} > {tolerance}");
    }
}

/// See the name.
pub fn the_original_continues_as_recorded<B: Backend>(open: impl Fn() -> B, precision: &Precision) {
    let Some(folder) = shared("models/forge-tiny") else { return };
    let checkpoint = Checkpoint::open(folder).unwrap();
    check_continuations(open(), &checkpoint, precision.margin(0.05));
}

/// See the name.
pub fn the_original_has_the_recorded_margins<B: Backend>(
    open: impl Fn() -> B,
    precision: &Precision,
) {
    let Some(folder) = shared("models/forge-tiny") else { return };
    let checkpoint = Checkpoint::open(folder).unwrap();
    check_margins(open(), &checkpoint, precision.margin(0.02));
}

/// See the name.
pub fn the_embedded_model_continues_as_recorded<B: Backend>(
    open: impl Fn() -> B,
    _precision: &Precision,
) {
    check_continuations(open(), &embedded(), EIGHT_BIT_MARGIN);
}

/// See the name.
pub fn the_embedded_model_has_nearly_the_recorded_margins<B: Backend>(
    open: impl Fn() -> B,
    _precision: &Precision,
) {
    check_margins(open(), &embedded(), EIGHT_BIT_MARGIN);
}
