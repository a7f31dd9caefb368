//! Order and content of the events.

use super::writer::{MessageWriter, whole};
use crate::serve::error::{ApiError, ErrorKind};
use crate::serve::generation::{Generation, Head};
use crate::serve::http::sse::{Encoder, Frame};
use crate::serve::request::{Finish, GenerateEvent, Usage};
use serde_json::{Value, json};

fn head() -> Head {
    Head { model: "m".into(), created: 7, prompt_tokens: 10, choices: 1 }
}

fn events() -> Vec<GenerateEvent> {
    let (choice, index) = (0, 0);
    vec![
        GenerateEvent::Prefill { choice, done: 6, total: 10, cached: 4 },
        GenerateEvent::Prefill { choice, done: 10, total: 10, cached: 4 },
        GenerateEvent::Reasoning { choice, text: "h".into() },
        GenerateEvent::Reasoning { choice, text: "m".into() },
        GenerateEvent::Text { choice, text: "Hello".into(), logprobs: Vec::new() },
        GenerateEvent::Text { choice, text: String::new(), logprobs: Vec::new() },
        GenerateEvent::ToolCallStart { choice, index, id: "call_1".into(), name: "f".into() },
        GenerateEvent::ToolCallArguments { choice, index, delta: "{\"a\":".into() },
        GenerateEvent::ToolCallArguments { choice, index, delta: "1}".into() },
        GenerateEvent::ToolCallEnd { choice },
        GenerateEvent::Finished { choice, reason: Finish::ToolCalls },
        usage(7),
    ]
}

fn usage(completion_tokens: usize) -> GenerateEvent {
    GenerateEvent::Usage(Usage {
        prompt_tokens: 10,
        cached_tokens: 4,
        completion_tokens,
        reasoning_tokens: 2,
        ..Usage::default()
    })
}

fn written(shows_thinking: bool, events: Vec<GenerateEvent>) -> (Vec<Value>, Value) {
    let mut writer = MessageWriter::new(shows_thinking, Some(7));
    let mut frames = Vec::new();
    writer.head(&head(), &mut frames);
    assert!(matches!(writer.ping(), Frame::Comment(_)));
    for event in events {
        writer.event(event, &mut frames);
    }
    let parse = |frame: &Frame| match frame {
        Frame::Data(name, text) => {
            let mut value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value["type"], name.unwrap());
            value.as_object_mut().unwrap().remove("type");
            json!([name.unwrap(), value])
        }
        Frame::Comment(_) => panic!("a comment"),
    };
    (frames.iter().map(parse).collect(), writer.into_message())
}

#[test]
fn blocks_have_their_events_in_order() {
    let (events, message) = written(true, events());
    let block = |index: usize, block: Value| json!(["content_block_start", {"index": index, "content_block": block}]);
    let delta = |index: usize, delta: Value| json!(["content_block_delta", {"index": index, "delta": delta}]);
    let stop = |index: usize| json!(["content_block_stop", {"index": index}]);
    let usage = |output: usize, thinking: usize| {
        json!({
            "input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
            "output_tokens": output, "output_tokens_details": {"thinking_tokens": thinking},
            "service_tier": "standard",
        })
    };
    let start = &events[0];
    assert_eq!((&start[0], &start[1]["message"]["usage"]), (&json!("message_start"), &usage(0, 0)));
    assert_eq!(start[1]["message"]["model"], "m");
    assert_eq!(
        events[1..],
        [
            json!(["ping", {}]),
            block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
            delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
            delta(0, json!({"type": "signature_delta", "signature": "forge"})),
            stop(0),
            block(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Hello"})),
            stop(1),
            block(2, json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "1}"})),
            stop(2),
            json!(["message_delta", {"delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": usage(7, 2)}]),
            json!(["message_stop", {}]),
        ]
    );
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": "forge"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        ])
    );
    assert_eq!((&message["stop_reason"], &message["usage"]), (&json!("tool_use"), &usage(7, 2)));
}

#[test]
fn reasoning_that_is_not_wanted_comes_sealed() {
    let (events, message) = written(false, events());
    assert!(!events.iter().any(|event| event[1]["delta"]["type"] == "thinking_delta"));
    let sealed = json!({"type": "thinking", "thinking": "", "signature": "forge:1:hm"});
    assert_eq!(message["content"][0], sealed);
}

#[test]
fn ends_have_their_words() {
    let end = |reason: Finish, tokens: usize| {
        let finished = GenerateEvent::Finished { choice: 0, reason };
        let (_, message) = written(true, vec![finished, usage(tokens)]);
        json!([message["stop_reason"], message["stop_sequence"]])
    };
    assert_eq!(end(Finish::Stop, 7), json!(["end_turn", null]));
    assert_eq!(end(Finish::StopString("x".into()), 3), json!(["stop_sequence", "x"]));
    assert_eq!(end(Finish::Length, 7), json!(["max_tokens", null]));
    assert_eq!(end(Finish::Length, 6), json!(["model_context_window_exceeded", null]));
}

#[test]
fn a_call_that_was_cut_is_not_in_the_whole_message() {
    let mut cut = events();
    cut.truncate(8);
    cut.extend([GenerateEvent::Finished { choice: 0, reason: Finish::Length }, usage(7)]);
    let (events, message) = written(true, cut);
    assert_eq!(message["content"].as_array().unwrap().len(), 2);
    assert_eq!(events[events.len() - 3][0], "content_block_stop");
}

#[tokio::test]
async fn errors_are_events_in_a_stream_and_errors_otherwise() {
    let busy = || GenerateEvent::Error(ApiError::new(ErrorKind::Busy, "full"));
    let (events, _) = written(true, vec![busy()]);
    assert_eq!(
        events,
        [json!(["error", {"error": {"type": "rate_limit_error", "message": "full"}}])]
    );
    let generation = Generation::new(head(), futures_util::stream::iter(vec![busy()]));
    let error = whole(generation, MessageWriter::new(true, None)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
}
