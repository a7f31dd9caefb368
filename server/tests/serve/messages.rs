//! The Messages API: whole and streamed, tools, stops, usage, fields.

use crate::chat::server;
use crate::client::Server;
use crate::responses::named_events;
use serde_json::{Value, json};

fn body(extra: Value) -> Value {
    let mut body = json!({
        "model": "forge-tiny", "max_tokens": 60,
        "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
    });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn ask(extra: Value) -> Value {
    let reply = server().post("/v1/messages", &body(extra));
    let (status, value) = (reply.status, reply.json());
    assert_eq!(status, 200, "{value}");
    value
}

fn stream(extra: Value) -> Vec<Value> {
    let mut body = body(extra);
    body["stream"] = true.into();
    let reply = server().post("/v1/messages", &body);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    named_events(&reply.text())
}

fn count(extra: Value) -> u64 {
    let mut body = body(extra);
    body.as_object_mut().unwrap().remove("max_tokens");
    let reply = server().post("/v1/messages/count_tokens", &body);
    let (status, value) = (reply.status, reply.json());
    assert_eq!(status, 200, "{value}");
    value["input_tokens"].as_u64().unwrap()
}

/// All tokens of the prompt, from the cache or not.
fn input_tokens(usage: &Value) -> u64 {
    let figures = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    figures.iter().map(|figure| usage[figure].as_u64().unwrap()).sum()
}

fn text(message: &Value) -> String {
    let blocks = message["content"].as_array().unwrap().iter();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}

fn weather() -> Value {
    json!({
        "name": "get_weather", "description": "Weather of a city",
        "input_schema": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    })
}

fn user(content: Value) -> Value {
    json!([{"role": "user", "content": content}])
}

#[test]
fn a_stream_says_what_the_whole_message_says() {
    let _server = server();
    let extra = || {
        json!({
            "messages": user(json!("What is 12 + 31?")), "max_tokens": 200,
            "thinking": {"type": "enabled", "budget_tokens": 100},
        })
    };
    let whole = ask(extra());
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    let events = stream(extra());
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .filter(|kind| *kind != "ping" && *kind != "content_block_delta")
        .collect();
    assert_eq!(
        kinds,
        [
            "message_start",
            "content_block_start",
            "content_block_stop",
            "content_block_start",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let joined = |key: &str| -> String {
        events.iter().filter_map(|event| event["delta"][key].as_str()).collect()
    };
    assert_eq!(joined("thinking"), whole["content"][0]["thinking"].as_str().unwrap());
    assert_eq!(joined("signature"), whole["content"][0]["signature"].as_str().unwrap());
    assert_eq!(joined("text"), text(&whole));
    assert!(!joined("text").contains("think>"));
    // The real figures from the beginning on.
    let start = &events[0]["message"]["usage"];
    let end = &events[events.len() - 2];
    let counted = count(extra());
    for usage in [start, &end["usage"], &whole["usage"]] {
        assert_eq!(input_tokens(usage), counted);
    }
    assert_eq!(end["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    assert_eq!(end["delta"]["stop_reason"], whole["stop_reason"]);
}

#[test]
fn thinking_is_off_unless_it_is_asked_for() {
    let _server = server();
    let plain = ask(json!({"messages": user(json!("What is 12 + 31?"))}));
    assert_eq!(plain["content"][0]["type"], "text");
    assert_eq!(plain["usage"]["output_tokens_details"]["thinking_tokens"], 0);
    let off =
        ask(json!({"messages": user(json!("What is 12 + 31?")), "thinking": {"type": "disabled"}}));
    assert_eq!(off["content"], plain["content"]);
}

#[test]
fn reasoning_comes_back_with_its_turn() {
    let _server = server();
    let extra = |display: &str| {
        json!({
            "messages": user(json!("What is 12 + 31?")), "max_tokens": 200,
            "thinking": {"type": "enabled", "budget_tokens": 100, "display": display},
        })
    };
    let shown = ask(extra("summarized"))["content"].clone();
    let sealed = ask(extra("omitted"))["content"].clone();
    assert_eq!(sealed[0]["thinking"], "");
    let tokens = |content: Value| {
        let question = json!({"role": "user", "content": "What is 12 + 31?"});
        let next = json!({"role": "user", "content": "Sure?"});
        count(json!({"messages": [question, {"role": "assistant", "content": content}, next]}))
    };
    assert_eq!(tokens(shown.clone()), tokens(sealed.clone()));
    // A client that leaves the reasoning out is helped by what the server remembers.
    assert_eq!(tokens(shown.clone()), tokens(json!([shown[1]])));
    // Of an answer that nobody gave nothing is remembered: here the blocks alone count.
    let other = json!({"type": "text", "text": "Forty-three, I think."});
    let (with, without) = (tokens(json!([shown[0], other])), tokens(json!([other])));
    assert_eq!(with, tokens(json!([sealed[0], other])));
    assert!(with > without);
}

#[test]
fn stop_sequences_end_the_text_before_them_and_are_named() {
    let _server = server();
    let whole = text(&ask(json!({})));
    let words: Vec<&str> = whole.split(' ').collect();
    let stop = format!("{} {}", words[5], words[6]);
    let expected = whole.split(&stop).next().unwrap();
    let extra = || json!({"stop_sequences": ["never said", stop, "or this", "nor this", "that"]});
    let reply = ask(extra());
    assert_eq!(text(&reply), expected);
    assert_eq!(
        (&reply["stop_reason"], &reply["stop_sequence"]),
        (&json!("stop_sequence"), &json!(stop))
    );
    let events = stream(extra());
    let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(delta["delta"], json!({"stop_reason": "stop_sequence", "stop_sequence": stop}));
    let cut = ask(json!({"max_tokens": 5}));
    assert_eq!(
        (&cut["stop_reason"], &cut["usage"]["output_tokens"]),
        (&json!("max_tokens"), &json!(5))
    );
}

#[test]
fn a_call_goes_round() {
    let _server = server();
    let question = json!({"role": "user", "content": "What is the weather in Oslo?"});
    let extra = || json!({"messages": [question], "tools": [weather()], "max_tokens": 200});
    let reply = ask(extra());
    assert_eq!(reply["stop_reason"], "tool_use", "{reply}");
    let call = reply["content"].as_array().unwrap().last().unwrap();
    assert_eq!((&call["name"], &call["input"]), (&json!("get_weather"), &json!({"city": "Oslo"})));
    let events = stream(extra());
    let partial: String =
        events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&partial).unwrap(), call["input"]);
    assert!(!events.iter().any(|e| e["delta"]["text"].as_str().is_some_and(|t| t.contains('<'))));
    for content in
        [json!("12 degrees, rain"), json!([{"type": "text", "text": "12 degrees, rain"}])]
    {
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": content});
        let messages = json!([
            question,
            {"role": "assistant", "content": reply["content"]},
            {"role": "user", "content": [result]},
        ]);
        let reply = ask(json!({"messages": messages, "tools": [weather()]}));
        assert!(text(&reply).contains("12"), "{reply}");
    }
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "get_weather"})] {
        let mut choice = choice;
        choice["disable_parallel_tool_use"] = true.into();
        let reply = ask(
            json!({"messages": user(json!("Hello!")), "tools": [weather()], "tool_choice": choice, "max_tokens": 200}),
        );
        let calls = reply["content"].as_array().unwrap().iter().filter(|b| b["type"] == "tool_use");
        assert_eq!(calls.count(), 1, "{reply}");
    }
    let none =
        ask(json!({"messages": [question], "tools": [weather()], "tool_choice": {"type": "none"}}));
    assert_ne!(none["stop_reason"], "tool_use");
}

#[test]
fn lines_that_change_with_every_request_do_not_reach_the_prompt() {
    let filler = "You write short stories about animals. ".repeat(12);
    let system = |hash: &str| {
        let header = format!("x-anthropic-billing-header: cc_version=2.1.63; cch={hash};");
        json!({"system": [{"type": "text", "text": header}, {"type": "text", "text": filler}], "max_tokens": 2})
    };
    let plain = json!({"system": filler});
    assert_eq!(count(system("1f0aa")), count(plain));
    // Whatever the cache holds of the same request, it holds of one with another value.
    let server = Server::start(&["--slots", "1", "--ctx", "1024"]);
    let usage =
        |hash: &str| server.post("/v1/messages", &body(system(hash))).json()["usage"].clone();
    usage("1f0aa");
    assert_eq!(usage("1f0aa"), usage("b77c1"));
}

#[test]
fn contents_in_blocks_are_the_same_tokens() {
    let _server = server();
    let part =
        |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    let parts = || json!([part("a"), part(""), part("bc")]);
    let base = count(json!({"system": "abc", "messages": user(json!("abc"))}));
    assert_eq!(count(json!({"system": parts(), "messages": user(parts())})), base);
}

#[test]
fn a_last_message_of_the_assistant_is_continued() {
    let _server = server();
    let question = json!({"role": "user", "content": "What is the capital of France?"});
    let ask = |last: &str| {
        text(&ask(json!({"messages": [question, {"role": "assistant", "content": last}]})))
    };
    let whole = text(&self::ask(json!({"messages": [question]})));
    let (start, rest) = whole.split_at(whole.find(' ').unwrap());
    assert_eq!(ask(start), rest);
    assert_eq!(ask(""), whole);
}

#[test]
fn system_messages_keep_their_place() {
    let _server = server();
    let turn = |role: &str, text: &str| json!({"role": role, "content": text});
    for messages in [
        json!([turn("user", "a"), turn("system", "b"), turn("user", "c")]),
        json!([turn("user", "a"), turn("assistant", "b"), turn("system", "c"), turn("user", "d")]),
    ] {
        ask(json!({"system": "s", "messages": messages, "max_tokens": 2}));
    }
}

#[test]
fn structured_output_obeys_its_schema() {
    let _server = server();
    let schema = json!({
        "type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["age"], "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "schema": schema});
    for extra in [json!({"output_config": {"format": format}}), json!({"output_format": format})] {
        let value: Value = serde_json::from_str(&text(&ask(extra))).unwrap();
        assert!(value["age"].is_u64(), "{value}");
    }
}

#[test]
fn every_field_works_or_is_refused_by_name() {
    let server = server();
    for (field, value) in [
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("top_k", json!(5)),
        ("seed", json!(1)),
        ("presence_penalty", json!(0.5)),
        ("metadata", json!({"user_id": "me"})),
        ("service_tier", json!("auto")),
        ("cache_control", json!({"type": "ephemeral"})),
        ("thinking", json!({"type": "adaptive"})),
        ("output_config", json!({"effort": "low"})),
        ("tools", json!([])),
        ("tool_choice", json!({"type": "auto"})),
        ("stop_sequences", json!([])),
        (
            "context_management",
            json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
        ),
        ("system", json!("")),
    ] {
        let mut request = body(json!({"max_tokens": 2}));
        request[field] = value.clone();
        let reply = server.post("/v1/messages?beta=true", &request);
        let status = reply.status;
        assert_eq!(status, 200, "{field}: {value}: {}", reply.text());
    }
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}});
    for (field, value, named) in [
        ("temperature", json!(-1), "temperature"),
        ("top_p", json!(1.5), "top_p"),
        ("top_k", json!(-2), "top_k"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_tokens", Value::Null, "max_tokens"),
        ("stop_sequences", json!([""]), "stop_sequences"),
        ("thinking", json!({"type": "maybe"}), "thinking.type"),
        ("tools", json!([{"type": "web_search_20250305", "name": "web_search"}]), "tools[0].type"),
        ("tool_choice", json!({"type": "tool", "name": "other"}), "tool_choice"),
        ("metadata", json!({"odd": 1}), "metadata.odd"),
        ("container", json!("c"), "container"),
        ("no_such_field", json!(1), "no_such_field"),
        ("messages", json!([]), "messages"),
        ("messages", user(json!([image])), "messages[0].content[0]"),
        (
            "messages",
            user(json!([{"type": "tool_result", "tool_use_id": "t", "content": [image]}])),
            "messages[0].content[0].content[0]",
        ),
        ("messages", user(json!([{"type": "document"}])), "messages[0].content[0]"),
    ] {
        let mut request = body(json!({"max_tokens": 2}));
        request[field] = value.clone();
        let reply = server.post("/v1/messages", &request);
        let (status, error) = (reply.status, reply.json());
        assert_eq!(status, 400, "{field}: {value}: {error}");
        assert_eq!(
            (&error["type"], &error["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{named}:")), "{message}");
    }
}

#[test]
fn errors_have_the_form_of_the_api() {
    let server = server();
    let reply = server.post("/v1/messages", &body(json!({"model": "claude-9"})));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["type"], "not_found_error");
    for stream in [false, true] {
        let long = user(json!("word ".repeat(3000)));
        let reply = server.post("/v1/messages", &body(json!({"messages": long, "stream": stream})));
        assert_eq!(reply.status, 400);
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            message.starts_with("prompt is too long: ") && message.contains("2048"),
            "{message}"
        );
    }
    let keyed = Server::start(&["--slots", "1", "--ctx", "256", "--api-key", "secret"]);
    let reply = keyed.post("/v1/messages", &body(json!({})));
    assert_eq!(reply.status, 401);
    assert_eq!(reply.json()["error"]["type"], "authentication_error");
    let short = body(json!({"max_tokens": 2})).to_string();
    for key in [("x-api-key", "secret"), ("authorization", "Bearer secret")] {
        let headers = [key, ("anthropic-version", "2023-06-01"), ("anthropic-beta", "x")];
        assert_eq!(keyed.send("POST", "/v1/messages", &headers, short.as_bytes()).status, 200);
    }
}

#[test]
fn a_long_prompt_sends_signs_of_life() {
    let _server = server();
    let long = user(json!("word ".repeat(1800)));
    let events = stream(json!({"messages": long, "max_tokens": 2}));
    assert_eq!(events[0]["type"], "message_start");
    assert!(events.iter().any(|event| event["type"] == "ping"), "{events:?}");
}
