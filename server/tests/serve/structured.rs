//! Tools and structured output.

use crate::chat::{server, user};
use crate::client::joined;
use serde_json::{Value, json};

fn weather() -> Value {
    json!({"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    }})
}

fn clock() -> Value {
    json!({"type": "function", "function": {
        "name": "get_time", "description": "Time in a zone",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "string"}, "seconds": {"type": "boolean"}},
            "required": ["zone", "seconds"],
        },
    }})
}

fn request(extra: Value) -> Value {
    let mut request = json!({
        "messages": user("What is the weather in Oslo?"), "tools": [weather(), clock()],
        "max_tokens": 200,
    });
    request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    request
}

/// Calls of a streamed reply: id, name, arguments.
fn streamed_calls(chunks: &[Value]) -> Vec<(String, String, String)> {
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for chunk in chunks {
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if index == calls.len() {
                calls.push((text(&call["id"]), text(&call["function"]["name"]), String::new()));
            }
            calls[index].2 += &text(&call["function"]["arguments"]);
        }
    }
    calls
}

#[test]
fn a_call_goes_round() {
    let server = server();
    let reply = server.chat(&request(json!({})));
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{reply}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "get_weather");
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Oslo"}));

    let chunks = server.stream(&request(json!({})));
    let calls = streamed_calls(&chunks);
    assert_eq!(calls[0].1, "get_weather");
    assert_eq!(calls[0].2, call["function"]["arguments"].as_str().unwrap());
    assert!(calls[0].0.starts_with("call_") && calls[0].0 != call["id"].as_str().unwrap());
    assert!(!joined(&chunks, 0, "content").contains('<'));
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");

    for content in
        [json!("12 degrees, rain"), json!([{"type": "text", "text": "12 degrees, rain"}])]
    {
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": content});
        let messages = json!([user("What is the weather in Oslo?")[0], choice["message"], result]);
        let reply = server.chat(&request(json!({"messages": messages})));
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        assert!(
            reply["choices"][0]["message"]["content"].as_str().unwrap().contains("12"),
            "{reply}"
        );
    }
}

#[test]
fn tool_choice_is_obeyed() {
    let server = server();
    let none = server.chat(&request(json!({"tool_choice": "none"})));
    assert!(none["choices"][0]["message"]["tool_calls"].is_null());
    let auto = server.chat(&request(json!({})));
    let required =
        server.chat(&request(json!({"tool_choice": "required", "parallel_tool_calls": false})));
    let function =
        |reply: &Value| reply["choices"][0]["message"]["tool_calls"][0]["function"].clone();
    assert_eq!(function(&auto), function(&required));
    let greeting = json!({"tool_choice": "required", "messages": user("Hello!"), "parallel_tool_calls": false});
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "get_time"}})]
    {
        let mut body = request(greeting.clone());
        body["tool_choice"] = choice.clone();
        let reply = server.chat(&body);
        let calls = reply["choices"][0]["message"]["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "{reply}");
        let chunks = server.stream(&body);
        let streamed = streamed_calls(&chunks);
        assert_eq!(streamed[0].2, calls[0]["function"]["arguments"].as_str().unwrap());
        if choice.is_object() {
            assert_eq!(calls[0]["function"]["name"], "get_time");
            let arguments: Value = serde_json::from_str(&streamed[0].2).unwrap();
            assert!(
                arguments["zone"].is_string() && arguments["seconds"].is_boolean(),
                "{arguments}"
            );
        }
    }
    for (choice, tools) in [
        (json!({"type": "function", "function": {"name": "other"}}), json!([weather()])),
        (json!("required"), json!([])),
        (json!("sometimes"), json!([weather()])),
    ] {
        let body = request(json!({"tool_choice": choice, "tools": tools}));
        let reply = server.post("/v1/chat/completions", &body);
        assert_eq!(reply.status, 400);
        assert_eq!(reply.json()["error"]["param"], "tool_choice");
    }
}

#[test]
fn histories_of_calls_come_in_every_shape() {
    let server = server();
    let history = |arguments: Value| {
        let call = json!({"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": arguments}});
        json!([
            user("Weather in Oslo?")[0], {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "12 degrees"},
        ])
    };
    let prompt = |arguments: Value| {
        let body = json!({"messages": history(arguments), "tools": [weather()]});
        server.post("/apply-template", &body).json()["prompt"].clone()
    };
    let object = prompt(json!({"city": "Oslo"}));
    assert!(object.as_str().unwrap().contains("<parameter=city>\nOslo\n</parameter>"));
    assert_eq!(prompt(json!("{\"city\": \"Oslo\"}")), object);
    server.chat(&request(json!({"messages": history(json!("")), "max_tokens": 2})));
    for bad in [json!("{city"), json!([1])] {
        let reply =
            server.post("/v1/chat/completions", &request(json!({"messages": history(bad)})));
        assert_eq!(reply.status, 400);
        assert!(reply.json()["error"]["param"].as_str().unwrap().starts_with("messages[1]"));
    }
}

fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(value["name"].is_string() && value["age"].is_i64(), "{text}");
    assert!(["a", "b"].contains(&value["kind"].as_str().unwrap()), "{text}");
    assert_eq!(value.as_object().unwrap().len(), 3);
}

#[test]
fn schemas_are_enforced_with_and_without_reasoning() {
    let server = server();
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["a", "b"]},
        },
        "required": ["name", "age", "kind"], "additionalProperties": false,
    });
    for format in [
        json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": true}}),
        json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}),
        json!({"type": "json_schema", "schema": schema}),
        json!({"type": "json_object", "schema": schema}),
    ] {
        for thinking in [false, true] {
            let request = json!({
                "messages": user("What is 12 + 31?"), "response_format": format,
                "enable_thinking": thinking, "thinking_budget": 30, "max_tokens": 200,
            });
            let reply = server.chat(&request);
            let message = &reply["choices"][0]["message"];
            check(message["content"].as_str().unwrap());
            assert_eq!(message["reasoning_content"].is_string(), thinking, "{message}");
            check(&joined(&server.stream(&request), 0, "content"));
        }
    }
    let request = json!({
        "messages": user("Make JSON."), "response_format": {"type": "json_object"}, "max_tokens": 300,
        "temperature": 1.0, "seed": 3,
    });
    let reply = server.chat(&request);
    if reply["choices"][0]["finish_reason"] == "stop" {
        let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}");
    }
}

#[test]
fn formats_that_cannot_be_enforced_are_refused() {
    let server = server();
    for format in [
        json!({"type": "json_schema"}),
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": "y"}}),
        json!({"type": "xml"}),
        json!({"type": "json_schema", "json_schema": {"schema": {"type": "no such type"}}}),
        json!({"kind": "json_object"}),
    ] {
        let body = json!({"messages": user("x"), "response_format": format});
        let reply = server.post("/v1/chat/completions", &body);
        assert_eq!(reply.status, 400, "{format}");
        let param = reply.json()["error"]["param"].as_str().unwrap().to_owned();
        assert!(param.starts_with("response_format"), "{param}");
    }
}
