//! The Responses API: whole and streamed, chains, tools, stored responses, fields.

use crate::chat::server;
use crate::client::Server;
use serde_json::{Value, json};

/// Named events of a stream; the names are checked against the data.
pub(crate) fn named_events(text: &str) -> Vec<Value> {
    let mut events = Vec::new();
    for block in text.split("\n\n").filter(|block| block.starts_with("event: ")) {
        let (name, data) = block.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["type"], name.strip_prefix("event: ").unwrap());
        events.push(data);
    }
    events
}

fn ask(server: &Server, body: &Value) -> Value {
    let reply = server.post("/v1/responses", body);
    let (status, value) = (reply.status, reply.json());
    assert_eq!(status, 200, "{value}");
    value
}

fn stream(body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = true.into();
    let reply = server().post("/v1/responses", &body);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let events = named_events(&reply.text());
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    events
}

fn weather() -> Value {
    json!({
        "type": "function", "name": "get_weather", "description": "Weather of a city",
        "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        },
    })
}

fn text(response: &Value) -> String {
    let items = response["output"].as_array().unwrap().iter();
    let messages = items.filter(|item| item["type"] == "message");
    messages.map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

/// An item without what differs from one response to the next.
fn anonymous(item: &Value) -> Value {
    let mut item = item.clone();
    item["id"] = Value::Null;
    item["call_id"] = Value::Null;
    item
}

#[test]
fn a_stream_says_what_the_whole_response_says() {
    let server = server();
    let body = json!({
        "input": "What is 12 + 31?", "max_output_tokens": 200, "reasoning": {"effort": "high"},
    });
    let whole = ask(&server, &body);
    assert_eq!((&whole["object"], &whole["model"]), (&json!("response"), &json!("forge-tiny")));
    let events = stream(&body);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["status"], whole["status"]);
    let items = |response: &Value| -> Vec<Value> {
        response["output"].as_array().unwrap().iter().map(anonymous).collect()
    };
    assert_eq!(items(last), items(&whole));
    assert_eq!(last["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[..5],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
        ]
    );
    let joined = |kind: &str| -> String {
        let deltas = events.iter().filter(|event| event["type"] == kind);
        deltas.map(|event| event["delta"].as_str().unwrap()).collect()
    };
    assert_eq!(joined("response.output_text.delta"), text(&whole));
    assert_eq!(
        joined("response.reasoning_text.delta"),
        whole["output"][0]["content"][0]["text"].as_str().unwrap()
    );
    assert!(whole["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
    assert!(!text(&whole).contains("think>") && !text(&whole).is_empty());
}

#[test]
fn lengths_are_honoured_and_overflows_refused() {
    let server = server();
    let body = json!({"input": "Tell me a story about a fox.", "max_output_tokens": 5});
    let reply = ask(&server, &body);
    assert_eq!(reply["usage"]["output_tokens"], 5);
    assert_eq!(reply["status"], "incomplete");
    assert_eq!(reply["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(stream(&body).last().unwrap()["type"], "response.incomplete");
    for stream in [false, true] {
        let body = json!({"input": "word ".repeat(3000), "stream": stream});
        let reply = server.post("/v1/responses", &body);
        assert_eq!(reply.status, 400);
        let error = reply.json()["error"].clone();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("context_length_exceeded"), &json!("input"))
        );
    }
}

#[test]
fn a_chain_is_the_same_prompt_as_the_whole_history() {
    let server = server();
    let first =
        ask(&server, &json!({"input": "What is the capital of France?", "max_output_tokens": 20}));
    let id = first["id"].as_str().unwrap();
    let second =
        json!({"input": "And of Norway?", "previous_response_id": id, "max_output_tokens": 20});
    let chained = ask(&server, &second);
    assert_eq!(chained["previous_response_id"], id);
    let mut history = vec![json!({"role": "user", "content": "What is the capital of France?"})];
    history.extend(first["output"].as_array().unwrap().clone());
    history.push(json!({"role": "user", "content": "And of Norway?"}));
    let explicit = json!({"input": history, "max_output_tokens": 20, "store": false});
    let explicit = ask(&server, &explicit);
    assert_eq!(text(&explicit), text(&chained));
    assert_eq!(explicit["usage"]["input_tokens"], chained["usage"]["input_tokens"]);
    // What the client must not come back to is not there.
    let path = format!("/v1/responses/{}", explicit["id"].as_str().unwrap());
    assert_eq!(server.get(&path).status, 404);
    let reference = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let user = |text: &str| json!({"role": "user", "content": text});
    let by_reference = json!({
        "input": [user("What is the capital of France?"), reference, user("And of Norway?")],
        "max_output_tokens": 20,
    });
    assert_eq!(text(&ask(&server, &by_reference)), text(&chained));
    let missing = json!({"input": "x", "previous_response_id": "resp_0"});
    let reply = server.post("/v1/responses", &missing);
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["param"], "previous_response_id");
}

#[test]
fn stored_responses_are_told_again_listed_and_forgotten() {
    let server = server();
    let body = json!({
        "input": [{"role": "user", "content": "Hello!"}, {"role": "user", "content": "Who are you?"}],
        "max_output_tokens": 12, "metadata": {"a": "b"},
    });
    let made = ask(&server, &body);
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&path).json(), made);
    let events = named_events(&server.get(&format!("{path}?stream=true")).text());
    assert_eq!(events.last().unwrap()["response"], made);
    let rest = server.get(&format!("{path}?stream=true&starting_after=1")).text();
    assert_eq!(named_events(&rest), events[2..]);
    let items = server.get(&format!("{path}/input_items?order=asc&limit=1")).json();
    assert_eq!(items["data"][0]["content"][0], json!({"type": "input_text", "text": "Hello!"}));
    assert_eq!(items["has_more"], true);
    let after = items["last_id"].as_str().unwrap();
    let next = server.get(&format!("{path}/input_items?order=asc&after={after}")).json();
    assert_eq!(next["data"][0]["content"][0]["text"], "Who are you?");
    assert_eq!(server.get(&format!("{path}?odd=1")).status, 400);
    let deleted = server.send("DELETE", &path, &[], b"");
    assert_eq!(deleted.json()["deleted"], true);
    assert_eq!(server.send("DELETE", &path, &[], b"").status, 404);
    assert_eq!(server.get(&path).status, 404);
}

#[test]
fn the_store_is_bounded() {
    let server = Server::start(&["--slots", "1", "--ctx", "256", "--response-store", "0"]);
    let made = ask(&server, &json!({"input": "Hello!", "max_output_tokens": 3}));
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&path).status, 404);
}

#[test]
fn a_call_goes_round() {
    let server = server();
    let body = json!({"input": "What is the weather in Oslo?", "tools": [weather()], "max_output_tokens": 200});
    let reply = ask(&server, &body);
    let call = reply["output"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("get_weather")),
        "{reply}"
    );
    assert_eq!(
        call["arguments"].as_str().map(serde_json::from_str::<Value>).unwrap().unwrap(),
        json!({"city": "Oslo"})
    );
    let events = stream(&body);
    let deltas: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta")
        .collect();
    let joined: String = deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(joined, call["arguments"].as_str().unwrap());
    assert!(!events.iter().any(|event| event["type"] == "response.output_text.delta"
        && event["delta"].as_str().unwrap().contains('<')));
    for output in
        [json!("12 degrees, rain"), json!([{"type": "input_text", "text": "12 degrees, rain"}])]
    {
        let result =
            json!({"type": "function_call_output", "call_id": call["call_id"], "output": output});
        let body = json!({
            "input": [result], "previous_response_id": reply["id"], "tools": [weather()], "max_output_tokens": 100,
        });
        let reply = ask(&server, &body);
        assert!(text(&reply).contains("12"), "{reply}");
    }
    let custom = json!({
        "input": "Hello!", "tools": [{"type": "custom", "name": "note", "description": "Writes a note"}],
        "tool_choice": {"type": "custom", "name": "note"}, "parallel_tool_calls": false, "max_output_tokens": 300,
    });
    let reply = ask(&server, &custom);
    let call = &reply["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("custom_tool_call"), &json!("note")),
        "{reply}"
    );
    assert!(call["input"].is_string());
}

#[test]
fn structured_output_obeys_its_schema() {
    let server = server();
    let schema = json!({
        "type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["age"], "additionalProperties": false,
    });
    for effort in ["none", "minimal"] {
        let body = json!({
            "input": "Describe a person.", "max_output_tokens": 700, "reasoning": {"effort": effort},
            "text": {"format": {"type": "json_schema", "name": "person", "strict": true, "schema": schema}},
        });
        let reply = ask(&server, &body);
        let value: Value = serde_json::from_str(&text(&reply)).unwrap();
        assert!(value["age"].is_u64() && value.as_object().unwrap().len() == 1, "{value}");
    }
}

/// What a coding client sends: hosted and custom tools, sealed reasoning, outputs in parts.
#[test]
fn a_request_of_a_coding_client_is_served() {
    let server = server();
    let body = json!({
        "model": "forge-tiny", "instructions": "You are a coding agent.", "store": false, "stream": true,
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
            {"type": "reasoning", "summary": [], "content": null, "encrypted_content": "forge:1:I should look."},
            {"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a.rs"}]},
            {"type": "custom_tool_call", "status": "completed", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "ok"},
        ],
        "tools": [
            {"type": "function", "name": "shell", "description": "Runs a command", "strict": false, "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"], "additionalProperties": false}},
            {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
            {"type": "web_search", "external_web_access": false},
        ],
        "tool_choice": "auto", "parallel_tool_calls": false, "max_output_tokens": 8,
        "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k", "client_metadata": {"installation": "x"},
    });
    let reply = server.post("/v1/responses", &body);
    assert_eq!(reply.status, 200);
    let ignored = reply.header("x-forge-ignored").unwrap().to_owned();
    assert!(
        ignored.contains("tools[2] (web_search)") && ignored.contains("tools[1].format"),
        "{ignored}"
    );
    let events = named_events(&reply.text());
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["type"], "reasoning");
    assert!(last["output"][0]["encrypted_content"].as_str().unwrap().starts_with("forge:1:"));
    // The sealed reasoning is in the prompt.
    let tokens = |body: &Value| {
        let reply = server.post("/v1/responses/input_tokens", body);
        assert_eq!(reply.status, 200);
        reply.json()["input_tokens"].as_u64().unwrap()
    };
    let counted = tokens(&body);
    assert_eq!(counted, last["usage"]["input_tokens"].as_u64().unwrap());
    let mut foreign = body.clone();
    foreign["input"][2]["encrypted_content"] = "gAAAA".into();
    assert!(tokens(&foreign) < counted);
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
        ("stop", json!("x")),
        ("top_logprobs", json!(2)),
        ("include", json!(["message.output_text.logprobs"])),
        ("truncation", json!("disabled")),
        ("text", json!({"format": {"type": "text"}, "verbosity": "medium"})),
        ("tools", json!([])),
        ("tool_choice", json!("none")),
        ("parallel_tool_calls", json!(false)),
        ("max_tool_calls", json!(3)),
        ("reasoning", json!({"effort": "none", "summary": null})),
        ("metadata", json!({"a": "b"})),
        ("user", json!("me")),
        ("safety_identifier", json!("me")),
        ("prompt_cache_key", json!("k")),
        ("service_tier", json!("auto")),
        ("background", json!(false)),
        ("stream_options", json!({"include_obfuscation": false})),
        ("conversation", Value::Null),
        ("input", json!([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}])),
    ] {
        let mut body = json!({"input": "Hello!", "max_output_tokens": 2, "store": false});
        body[field] = value.clone();
        let reply = server.post("/v1/responses", &body);
        let status = reply.status;
        assert_eq!(status, 200, "{field}: {value}: {}", reply.text());
    }
    for (field, value, param) in [
        ("temperature", json!(-1), "temperature"),
        ("top_p", json!("x"), "top_p"),
        ("top_logprobs", json!(21), "top_logprobs"),
        ("max_output_tokens", json!(0), "max_output_tokens"),
        ("truncation", json!("auto"), "truncation"),
        ("background", json!(true), "background"),
        ("conversation", json!("c"), "conversation"),
        ("prompt", json!({"id": "p"}), "prompt"),
        ("context_management", json!([{"type": "compaction"}]), "context_management"),
        ("service_tier", json!("flex"), "service_tier"),
        ("stream_options", json!({"include_obfuscation": true}), "stream_options"),
        ("tools", json!([{"type": "local_shell"}]), "tools[0].type"),
        ("tools", json!([{"type": "mcp"}]), "tools[0].type"),
        ("tool_choice", json!({"type": "allowed_tools"}), "tool_choice.type"),
        ("tool_choice", json!({"type": "function", "name": "f"}), "tool_choice"),
        ("text", json!({"format": {"type": "json_schema", "name": "n"}}), "text.format.schema"),
        (
            "text",
            json!({"format": {"type": "json_schema", "name": "n", "schema": {"type": "nonsense"}}}),
            "text.format",
        ),
        ("reasoning", json!({"odd": 1}), "reasoning.odd"),
        ("no_such_field", json!(1), "no_such_field"),
        ("input", json!([]), "input"),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]),
            "input[0].content[0]",
        ),
        (
            "input",
            json!([{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]),
            "input[0].output[0]",
        ),
    ] {
        let mut body = json!({"input": "Hello!", "max_output_tokens": 2, "store": false});
        body[field] = value.clone();
        let reply = server.post("/v1/responses", &body);
        let (status, error) = (reply.status, reply.json());
        assert_eq!(status, 400, "{field}: {value}: {error}");
        assert_eq!(error["error"]["param"], param, "{error}");
    }
}

#[test]
fn logprobs_cover_the_text() {
    let server = server();
    let body = json!({"input": "What is the capital of France?", "top_logprobs": 2, "max_output_tokens": 12, "store": false});
    let reply = ask(&server, &body);
    let part = &reply["output"][0]["content"][0];
    let tokens = part["logprobs"].as_array().unwrap();
    let joined: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(joined, part["text"].as_str().unwrap());
    assert_eq!(tokens[0]["top_logprobs"].as_array().unwrap().len(), 2);
}
