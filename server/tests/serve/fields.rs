//! Every field either works or is refused by name.

use crate::chat::{server, user};
use serde_json::{Value, json};

/// Fields of the chat API with a value that is taken.
fn taken() -> Vec<(&'static str, Value)> {
    vec![
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("top_k", json!(-1)),
        ("top_k", json!(1_000_000_000)),
        ("min_p", json!(1)),
        ("top_p", json!(0)),
        ("temperature", json!(1e-9)),
        ("presence_penalty", json!(0.5)),
        ("frequency_penalty", json!(0.5)),
        ("repetition_penalty", json!(1.1)),
        ("seed", json!(1)),
        ("stop", json!("x")),
        ("stop", json!(["x", "y"])),
        ("stop", Value::Null),
        ("max_tokens", json!(3)),
        ("max_completion_tokens", json!(3)),
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("logit_bias", json!({"5": 1})),
        ("response_format", json!({"type": "text"})),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(false)),
        ("reasoning_effort", json!("low")),
        ("reasoning", json!({"effort": "low", "max_tokens": 5})),
        ("thinking", json!({"type": "enabled", "budget_tokens": 9})),
        ("thinking_budget", json!(2)),
        ("enable_thinking", json!(true)),
        ("chat_template_kwargs", json!({"x": 1})),
        ("user", json!("me")),
        ("safety_identifier", json!("me")),
        ("metadata", json!({"a": "b"})),
        ("prompt_cache_key", json!("k")),
        ("store", json!(false)),
        ("service_tier", json!("auto")),
        ("modalities", json!(["text"])),
        ("verbosity", json!("medium")),
        ("functions", json!([])),
        ("stream", json!(false)),
        ("stream_options", Value::Null),
        ("prompt_cache_retention", json!("in_memory")),
    ]
}

/// Fields with a value that is refused, and the name in the error.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("temperature", json!(-1), "temperature"),
        ("temperature", json!("hot"), "temperature"),
        ("top_p", json!(1.0001), "top_p"),
        ("top_k", json!(-2), "top_k"),
        ("min_p", json!(-0.1), "min_p"),
        ("repetition_penalty", json!(0), "repetition_penalty"),
        ("seed", json!(1.5), "seed"),
        ("seed", json!("7"), "seed"),
        ("stop", json!(""), "stop"),
        ("stop", json!([""]), "stop"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("max_completion_tokens", json!(0), "max_completion_tokens"),
        ("n", json!(0), "n"),
        ("n", json!(100_000), "n"),
        ("top_logprobs", json!(3), "top_logprobs"),
        ("logit_bias", json!({"x": 1}), "logit_bias.x"),
        ("logit_bias", json!({"1": 101}), "logit_bias.1"),
        ("logit_bias", json!({"99999999": 1}), "logit_bias"),
        ("tools", json!([{"type": "web_search"}]), "tools[0].type"),
        ("reasoning_effort", json!("huge"), "reasoning_effort"),
        ("thinking", json!({"type": "maybe"}), "thinking.type"),
        ("store", json!(true), "store"),
        ("service_tier", json!("flex"), "service_tier"),
        ("verbosity", json!("low"), "verbosity"),
        ("modalities", json!(["text", "audio"]), "modalities"),
        ("audio", json!({"voice": "x"}), "audio"),
        ("prediction", json!({"type": "content"}), "prediction"),
        ("web_search_options", json!({}), "web_search_options"),
        ("functions", json!([{"name": "f"}]), "functions"),
        ("function_call", json!("auto"), "function_call"),
        ("stream_options", json!({"include_usage": true}), "stream_options"),
        ("no_such_field", json!(1), "no_such_field"),
        ("messages", json!([]), "messages"),
        ("messages", json!("hi"), "messages"),
        ("messages", json!([{"role": "robot", "content": "x"}]), "messages[0].role"),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]),
            "messages[0].content[0]",
        ),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
            "messages[0].content[0]",
        ),
        ("model", json!(5), "model"),
    ]
}

#[test]
fn every_field_works_or_is_refused_by_name() {
    let server = server();
    for (field, value) in taken() {
        let mut body = json!({"messages": user("Hello!"), "max_tokens": 2});
        body[field] = value.clone();
        let reply = server.post("/v1/chat/completions", &body);
        let status = reply.status;
        assert_eq!(status, 200, "{field}: {value}: {}", reply.text());
    }
    for (field, value, param) in refused() {
        let mut body = json!({"messages": user("Hello!"), "max_tokens": 2});
        body[field] = value.clone();
        let reply = server.post("/v1/chat/completions", &body);
        let status = reply.status;
        let error = reply.json();
        assert_eq!(status, 400, "{field}: {value}: {error}");
        assert_eq!(error["error"]["param"], param, "{error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    let contradiction =
        json!({"messages": user("x"), "enable_thinking": true, "reasoning_effort": "none"});
    assert_eq!(server.post("/v1/chat/completions", &contradiction).status, 400);
}

#[test]
fn completions_refuse_by_name_too() {
    let server = server();
    for (field, value) in [
        ("suffix", json!("x")),
        ("best_of", json!(3)),
        ("prompt", json!([])),
        ("prompt", json!("")),
        ("prompt", json!([999_999_999])),
        ("logprobs", json!(50)),
        ("echo", json!("yes")),
        ("messages", json!([])),
    ] {
        let mut body = json!({"prompt": "Hello", "max_tokens": 2});
        body[field] = value.clone();
        let reply = server.post("/v1/completions", &body);
        let (status, error) = (reply.status, reply.json());
        assert_eq!(status, 400, "{field}: {value}: {error}");
        assert_eq!(error["error"]["param"], field, "{error}");
    }
}

#[test]
fn contents_in_parts_are_the_same_tokens() {
    let server = server();
    let tokens = |content: Value| {
        let body = json!({"messages": [{"role": "system", "content": content}, {"role": "user", "content": "x"}]});
        server.post("/apply-template", &body).json()
    };
    let part = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(tokens(json!("abc")), tokens(json!([part("a"), part(""), part("bc")])));
}
