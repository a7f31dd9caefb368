//! Order and content of the events.

use super::store::ResponseStore;
use super::writer::{Form, Keep, ResponseWriter, replay, whole};
use crate::serve::error::ApiError;
use crate::serve::generation::{Generation, Head};
use crate::serve::http::sse::{Encoder, Frame};
use crate::serve::request::{Finish, GenerateEvent, Usage};
use serde_json::{Value, json};
use std::sync::Arc;

fn head() -> Head {
    Head { model: "m".into(), created: 7, prompt_tokens: 3, choices: 1 }
}

fn text(text: &str) -> GenerateEvent {
    GenerateEvent::Text { choice: 0, text: text.into(), logprobs: Vec::new() }
}

fn reasoning(text: &str) -> GenerateEvent {
    GenerateEvent::Reasoning { choice: 0, text: text.into() }
}

fn call(index: usize, name: &str, arguments: &[&str]) -> Vec<GenerateEvent> {
    let (choice, id) = (0, format!("call_{index}"));
    let mut events = vec![GenerateEvent::ToolCallStart { choice, index, id, name: name.into() }];
    events.extend(arguments.iter().map(|delta| GenerateEvent::ToolCallArguments {
        choice,
        index,
        delta: (*delta).into(),
    }));
    events.push(GenerateEvent::ToolCallEnd { choice });
    events
}

fn ended(reason: Finish) -> Vec<GenerateEvent> {
    let usage = Usage {
        prompt_tokens: 3,
        cached_tokens: 2,
        completion_tokens: 5,
        reasoning_tokens: 1,
        ..Usage::default()
    };
    vec![GenerateEvent::Finished { choice: 0, reason }, GenerateEvent::Usage(usage)]
}

fn data(frames: &[Frame]) -> Vec<Value> {
    let parse = |frame: &Frame| match frame {
        Frame::Data(name, text) => {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value["type"], name.unwrap());
            Some(value)
        }
        Frame::Comment(_) => None,
    };
    frames.iter().filter_map(parse).collect()
}

fn written(form: Form, events: Vec<GenerateEvent>) -> (Vec<Value>, Value) {
    let mut writer = ResponseWriter::new(form, None);
    let mut frames = Vec::new();
    writer.head(&head(), &mut frames);
    for event in events {
        writer.event(event, &mut frames);
    }
    let events = data(&frames);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    (events, writer.into_response())
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|e| e["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

fn everything() -> Vec<GenerateEvent> {
    let prefill = GenerateEvent::Prefill { choice: 0, done: 2, total: 3, cached: 2 };
    let mut events = vec![prefill, reasoning("hm"), reasoning("m"), text("He"), text("llo")];
    events.extend(call(0, "f", &["{\"a\":", "1}"]));
    events.extend(call(1, "patch", &["{\"input\":\"*** x\"}"]));
    events.extend(ended(Finish::ToolCalls));
    events
}

fn form() -> Form {
    let response = json!({"metadata": {}, "previous_response_id": null});
    Form { response, custom: ["patch".to_owned()].into(), ..Form::default() }
}

#[test]
fn every_item_has_its_events_in_order() {
    let (events, response) = written(form(), everything());
    assert_eq!(
        kinds(&events),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "reasoning_text.delta",
            "reasoning_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[0]["response"]["output"], json!([]));
    let delta = &events[11];
    assert_eq!(
        (&delta["output_index"], &delta["content_index"], &delta["delta"], &delta["logprobs"]),
        (&json!(1), &json!(0), &json!("He"), &json!([]))
    );
    assert_eq!(delta["item_id"], events[9]["item"]["id"]);
    let last = &events.last().unwrap()["response"];
    assert_eq!(*last, response);
    assert_eq!((&last["status"], &last["model"]), (&json!("completed"), &json!("m")));
    let output = last["output"].as_array().unwrap();
    assert_eq!(output[0]["content"], json!([{"type": "reasoning_text", "text": "hmm"}]));
    assert_eq!(
        output[1]["content"],
        json!([{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}])
    );
    assert_eq!(
        (&output[2]["arguments"], &output[2]["call_id"]),
        (&json!("{\"a\":1}"), &json!("call_0"))
    );
    assert_eq!(
        (&output[3]["type"], &output[3]["input"]),
        (&json!("custom_tool_call"), &json!("*** x"))
    );
    assert_eq!(
        last["usage"],
        json!({
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 1},
            "total_tokens": 8,
        })
    );
}

#[test]
fn a_summary_takes_the_place_of_the_reasoning() {
    let form = Form { summary: true, encrypted: true, ..form() };
    let events = [vec![reasoning("hm")], ended(Finish::Stop)].concat();
    let (events, response) = written(form, events);
    assert_eq!(
        kinds(&events)[2..8],
        [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ]
    );
    let item = &response["output"][0];
    assert_eq!(item["summary"], json!([{"type": "summary_text", "text": "hm"}]));
    assert_eq!((&item["content"], &item["encrypted_content"]), (&json!([]), &json!("forge:1:hm")));
    // Nothing was answered; clients look for a message all the same.
    assert_eq!(response["output"][1]["content"][0]["text"], "");
}

#[test]
fn a_reply_that_was_cut_is_incomplete() {
    let (events, response) = written(form(), [vec![text("a")], ended(Finish::Length)].concat());
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["status"], "incomplete");
    let (_, response) = written(form(), [vec![reasoning("a")], ended(Finish::Length)].concat());
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
}

#[test]
fn failures_are_events_with_a_beginning() {
    let busy =
        ApiError { code: Some("context_length_exceeded"), ..ApiError::invalid("input", "x") };
    let (events, response) = written(form(), vec![text("a"), GenerateEvent::Error(busy)]);
    assert_eq!(events.last().unwrap()["type"], "response.failed");
    assert_eq!(response["error"]["code"], "context_length_exceeded");
    let mut writer = ResponseWriter::new(form(), None);
    let mut frames = Vec::new();
    writer.event(GenerateEvent::Error(ApiError::internal("no")), &mut frames);
    assert_eq!(kinds(&data(&frames)), ["created", "in_progress", "failed"]);
}

#[tokio::test]
async fn a_whole_response_is_kept_and_told_again() {
    let store = Arc::new(ResponseStore::new(100_000));
    let input = vec![json!({"id": "msg_in"})];
    let keep = Keep { store: Arc::clone(&store), input: input.clone() };
    let generation = Generation::new(head(), futures_util::stream::iter(everything()));
    let writer = ResponseWriter::new(Form { encrypted: true, ..form() }, Some(keep));
    let response = whole(generation, writer).await.unwrap();
    let stored = store.get(response["id"].as_str().unwrap()).unwrap();
    assert_eq!((&stored.response, &stored.input), (&response, &input));
    let events = data(&replay(&response, None));
    assert_eq!(events.last().unwrap()["response"], response);
    let items: Vec<&Value> = events
        .iter()
        .filter(|e| e["type"] == "response.output_item.done")
        .map(|e| &e["item"])
        .collect();
    assert_eq!(items, response["output"].as_array().unwrap().iter().collect::<Vec<_>>());
    let rest = data(&replay(&response, Some(3)));
    assert_eq!(rest[0]["sequence_number"], 4);
    assert!(replay(&response, Some(u64::MAX)).is_empty());
}
