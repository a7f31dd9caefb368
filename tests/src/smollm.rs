//! A real public model: SmolLM2-135M-Instruct in Q4_1, against what another engine recorded.

use crate::fixtures::{json, list, numbers, own, shared, text, token_ids, tokenizer};
use crate::forge_tiny::{assert_equal_where_certain, largest_margin_change};
use crate::runner::Runner;
use crate::session::{Session, greedy_request};
use crate::tolerance::Precision;
use forge_core::backend::Backend;
use forge_core::chat::{ChatTemplate, Conversation, RenderOptions, TemplateTokens};
use forge_core::engine::EngineOptions;
use forge_core::kv::KvType;
use forge_core::tokenizer::SpecialTokens;
use forge_core::weights::Checkpoint;
use forge_core::{Result, TokenId};
use serde_json::Value;
use std::env;
use std::path::PathBuf;

/// What `.ci/fetch-smollm2` puts into the cache folder.
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Margin below which the recording engine's rounding may decide. It rounds activations to 8 bits,
/// so the places where the f32 reference prefers another token are left out too.
const RECORDED_MARGIN: f32 = 0.1;

/// The cache folder's file, if there is a cache folder.
fn cached() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("forge-tests").join(FILE))
}

/// The model, or `None` and a line that says so.
///
/// # Panics
/// If it is absent in CI (`CI` set), which fetches it.
pub fn checkpoint() -> Option<Checkpoint> {
    let Some(path) = cached().filter(|path| path.is_file()) else {
        assert!(env::var_os("CI").is_none(), "{FILE} is absent; .ci/fetch-smollm2 fetches it");
        println!("skipped: {FILE} is absent; .ci/fetch-smollm2 fetches it");
        return None;
    };
    Some(Checkpoint::open(path).unwrap())
}

fn options() -> EngineOptions {
    EngineOptions { context: Some(1024), slots: 4, ..EngineOptions::default() }
}

/// Prompts become the recorded ids, and the answers the recorded text.
pub fn tokens_match() {
    let (Some(checkpoint), Some(path)) = (checkpoint(), shared("cases/smollm2.json")) else {
        return;
    };
    let tokenizer = tokenizer(&checkpoint);
    for case in list(&json(&path)["completions"]) {
        let prompt = text(&case["prompt"]);
        let ids = tokenizer.encode_prompt(prompt, SpecialTokens::Parse).unwrap();
        assert_eq!(ids, token_ids(&case["prompt_tokens"]), "{prompt}");
        let mut stream = tokenizer.stream_decoder(false);
        let ids = token_ids(&case["tokens"]);
        let mut streamed: String = ids.iter().filter_map(|id| stream.push(*id)).collect();
        streamed.extend(stream.finish());
        assert_eq!(streamed, text(&case["text"]), "{prompt}");
        assert_eq!(tokenizer.decode(&ids, false), streamed, "{prompt}");
    }
}

/// The recorded conversation in the model's own template, and its ids.
fn rendered(checkpoint: &Checkpoint, chat: &Value) -> Result<(String, Vec<TokenId>)> {
    let tokenizer = tokenizer(checkpoint);
    let source = checkpoint.chat_template.as_deref().unwrap();
    let template = ChatTemplate::new(source, TemplateTokens::of(&tokenizer))?;
    let conversation: Conversation =
        serde_json::from_value(serde_json::json!({ "messages": chat["messages"] })).unwrap();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let rendered = template.render(&conversation, &options)?;
    Ok((rendered.text().into_owned(), rendered.encode(&tokenizer)?))
}

/// See the name.
pub fn the_chat_template_renders_as_recorded() {
    let (Some(checkpoint), Some(path)) = (checkpoint(), shared("cases/smollm2.json")) else {
        return;
    };
    let chat = &json(&path)["chat"];
    let (prompt, ids) = rendered(&checkpoint, chat).unwrap();
    assert_eq!(prompt, text(&chat["rendered"]));
    assert_eq!(Some(ids.len() as u64), chat["usage"]["prompt_tokens"].as_u64());
}

/// Margins of the recorded tokens by the NumPy reference in f32; `tests/tools/make_smollm2.py`
/// made them. Negative where it prefers another token.
fn reference_margins() -> Vec<(Vec<TokenId>, Vec<TokenId>, Vec<f32>)> {
    let file = json(&own("tests/fixtures/smollm2.json"));
    let case = |case: &Value| {
        let ids = |name: &str| token_ids(&case[name]);
        (ids("prompt_tokens"), ids("tokens"), numbers(&case["margins"]))
    };
    list(&file["completions"]).iter().map(case).collect()
}

/// With the recorded tokens as input, every margin is that of the NumPy reference.
pub fn margins_match_the_reference<B: Backend>(open: impl Fn() -> B, precision: &Precision) {
    let Some(checkpoint) = checkpoint() else { return };
    let mut runner = Runner::new(open(), &checkpoint, KvType::F32).unwrap();
    let mut worst = 0f32;
    for (prompt, tokens, expected) in reference_margins() {
        worst = worst.max(largest_margin_change(&mut runner, &prompt, &tokens, &expected));
    }
    println!("margins differ by {worst:.4} at most");
    assert!(worst <= precision.margin(0.02), "margins differ by {worst}");
}

/// Greedy tokens equal the recorded ones up to the first place where rounding may decide.
pub fn completions_match_where_certain<B: Backend>(open: impl Fn() -> B, precision: &Precision) {
    let (Some(checkpoint), Some(path)) = (checkpoint(), shared("cases/smollm2.json")) else {
        return;
    };
    let mut session = Session::new(open(), &checkpoint, &options()).unwrap();
    let recorded = json(&path);
    let cases = reference_margins();
    let requests: Vec<_> = cases.iter().map(|(p, o, _)| (p.as_slice(), o.len())).collect();
    let answers = session.greedy(&requests).unwrap();
    let recorded = list(&recorded["completions"]);
    for ((case, (_, output, reference)), answer) in recorded.iter().zip(&cases).zip(answers) {
        answer.end.unwrap();
        assert_eq!(output, &token_ids(&case["tokens"]));
        let mut margins = numbers(&case["top2_margin"]);
        if margins.len() != output.len() {
            // Recorded for each whole character instead of each token.
            margins = vec![f32::INFINITY; output.len()];
        }
        // What is left above both limits.
        let (mine, theirs) = (precision.margin(0.02), precision.margin(RECORDED_MARGIN));
        let excess = |(recorded, reference)| f32::min(recorded - theirs, reference - mine);
        let margins: Vec<f32> = margins.iter().zip(reference).map(excess).collect();
        assert_equal_where_certain(text(&case["prompt"]), &answer.tokens, output, &margins, 0.0);
    }
}

/// The answer ends by itself, with the recorded text.
pub fn the_chat_answer_matches<B: Backend>(open: impl Fn() -> B, _precision: &Precision) {
    let (Some(checkpoint), Some(path)) = (checkpoint(), shared("cases/smollm2.json")) else {
        return;
    };
    let recorded = json(&path);
    let chat = &recorded["chat"];
    let tokenizer = tokenizer(&checkpoint);
    let (_, prompt) = rendered(&checkpoint, chat).unwrap();
    let mut request = greedy_request(&prompt, 64);
    request.stop_tokens = tokenizer.stop_tokens(&checkpoint.generation);
    let mut session = Session::new(open(), &checkpoint, &options()).unwrap();
    let answer = session.run(vec![request]).unwrap().remove(0);
    assert_eq!(tokenizer.decode(&answer.tokens, true), text(&chat["text"]));
    let (reason, timing) = answer.end.unwrap();
    println!("{reason:?}, {timing:?}");
}

/// Prints tokens per second: a prompt of 512 tokens, then 64 tokens alone.
pub fn speed<B: Backend>(open: impl Fn() -> B, _precision: &Precision) {
    let Some(checkpoint) = checkpoint() else { return };
    let tokenizer = tokenizer(&checkpoint);
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(60);
    let mut prompt = tokenizer.encode(&text, SpecialTokens::Parse).unwrap();
    prompt.truncate(512);
    let options = EngineOptions { slots: 1, ..options() };
    let mut session = Session::new(open(), &checkpoint, &options).unwrap();
    for _ in 0..2 {
        let answer = session.greedy(&[(&prompt, 64)]).unwrap().remove(0);
        let (_, timing) = answer.end.unwrap();
        println!(
            "{}: prefill {:.1} tokens/s, decode {:.1} tokens/s",
            session.engine.backend().info().name,
            timing.prefill_rate(),
            timing.decode_rate(),
        );
    }
}
