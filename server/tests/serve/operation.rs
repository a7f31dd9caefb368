//! Keys, origins, limits, cancelling, overload, the end.

use crate::chat::{server, user};
use crate::client::{PATIENCE, Server};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn long() -> Value {
    json!({"messages": user("Tell me a story about a fox."), "max_tokens": 1900, "temperature": 1.0, "seed": 1,
        "logit_bias": {"6137": -100, "6135": -100}})
}

#[test]
fn keys_open_all_but_health() {
    let server = Server::start(&["--api-key", "secret", "--api-key", "other"]);
    assert_eq!(server.get("/health").status, 200);
    for path in ["/v1/models", "/slots", "/metrics"] {
        let refused = server.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.json()["error"]["type"], "authentication_error");
        for header in [("authorization", "Bearer secret"), ("x-api-key", "other")] {
            assert_eq!(server.send("GET", path, &[header], b"").status, 200);
        }
        for header in
            [("authorization", "Bearer secre"), ("authorization", "secret"), ("x-api-key", "")]
        {
            assert_eq!(server.send("GET", path, &[header], b"").status, 401, "{header:?}");
        }
    }
}

#[test]
fn pages_of_other_origins_are_refused_before_anything_happens() {
    let server = server();
    let body = json!({"messages": user("x"), "max_tokens": 1}).to_string();
    let json_type = ("content-type", "application/json");
    let before = server.get("/metrics").text();
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let reply = server.send(
            "POST",
            "/v1/chat/completions",
            &[("origin", origin), json_type],
            body.as_bytes(),
        );
        assert_eq!(reply.status, 403, "{origin}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
        let preflight = [("origin", origin), ("access-control-request-method", "POST")];
        let reply = server.send("OPTIONS", "/v1/chat/completions", &preflight, b"");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    drop(before);
    let own = format!("http://{}", server.address);
    let reply = server.send(
        "POST",
        "/v1/chat/completions",
        &[("origin", &own), json_type],
        body.as_bytes(),
    );
    assert_eq!(reply.status, 200);
    let open = Server::start(&["--cors-origin", "https://app.example"]);
    let preflight = [("origin", "https://app.example"), ("access-control-request-method", "POST")];
    let reply = open.send("OPTIONS", "/v1/chat/completions", &preflight, b"");
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    let reply = open.send("GET", "/v1/models", &[("origin", "https://app.example")], b"");
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
}

#[test]
fn errors_are_json_in_the_words_of_the_api() {
    let server = server();
    let missing = server.get("/v1/nothing");
    assert_eq!(missing.status, 404);
    assert!(missing.header("x-request-id").unwrap().starts_with("req_"));
    assert_eq!(missing.json()["error"]["type"], "not_found_error");
    let method = server.get("/v1/chat/completions");
    assert_eq!(method.status, 405);
    assert!(method.json()["error"]["message"].is_string());
    let broken = server.send("POST", "/v1/chat/completions", &[], b"{\"messages\": [");
    assert_eq!(broken.status, 400);
    assert!(broken.json()["error"]["message"].as_str().unwrap().contains("not JSON"));
    let named = server.send("GET", "/health", &[("x-request-id", "mine-1")], b"");
    assert_eq!(named.header("x-request-id"), Some("mine-1"));
    let unknown =
        server.post("/v1/chat/completions", &json!({"model": "gpt-9", "messages": user("x")}));
    assert_eq!(unknown.status, 404);
    let error = unknown.json();
    assert_eq!(error["error"]["code"], "model_not_found");
    assert!(error["error"]["message"].as_str().unwrap().contains("forge-tiny"));
}

#[test]
fn bodies_have_a_limit_and_a_time() {
    let server = Server::start(&["--body-limit", "1", "--read-timeout", "1", "--ctx", "2048"]);
    let large = json!({"messages": user(&"x".repeat(2 << 20))});
    let reply = server.post("/v1/chat/completions", &large);
    assert_eq!(reply.status, 413);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("1048576"));
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{";
    slow.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = slow.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    // Eight megabytes are fine elsewhere; what they say is what does not fit.
    let history = json!({"messages": user(&"word ".repeat(1_600_000))});
    let reply = crate::chat::server().post("/v1/chat/completions", &history);
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
}

#[test]
fn a_client_that_leaves_frees_its_slot() {
    let server = Server::start(&["--slots", "2", "--ctx", "2048"]);
    let idle = server.wait_idle();
    for round in 0..8 {
        let mut body = long();
        body["stream"] = (round % 2 == 0).into();
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20 * round));
        drop(stream);
        let left = Instant::now();
        let now = server.wait_idle();
        assert!(left.elapsed() < Duration::from_secs(5), "{:?}", left.elapsed());
        assert_eq!(now["free_blocks"], idle["free_blocks"]);
    }
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("forge_replies_total{end=\"cancelled\"}"), "{metrics}");
}

#[test]
fn too_many_requests_are_told_to_come_back() {
    let server = Server::start(&["--slots", "1", "--max-queue", "1", "--ctx", "2048"]);
    let mut body = long();
    body["stream"] = true.into();
    let mut running: Vec<_> = (0..2).map(|_| server.post("/v1/chat/completions", &body)).collect();
    assert!(running.iter().all(|reply| reply.status == 200));
    let refused = server.post("/v1/chat/completions", &body);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    let asked = Instant::now();
    assert_eq!(server.get("/health").json()["requests"], 2);
    assert!(asked.elapsed() < Duration::from_millis(500));
    running.clear();
    server.wait_idle();
    assert_eq!(
        server
            .post("/v1/chat/completions", &json!({"messages": user("x"), "max_tokens": 1}))
            .status,
        200
    );
}

#[test]
fn a_quiet_stream_shows_signs_of_life() {
    let server = Server::start(&["--slots", "1", "--ping", "1", "--ctx", "4096"]);
    let mut body = long();
    body["max_tokens"] = 4000.into();
    body["stream"] = true.into();
    let first = server.post("/v1/chat/completions", &body);
    // The second one waits for the only slot.
    let mut second = server.post("/v1/chat/completions", &body);
    assert_eq!(second.status, 200);
    let mut text = String::new();
    while !text.contains(": keep-alive\n\n") {
        text += &second.chunk().unwrap();
    }
    drop((first, second));
}

#[test]
#[cfg(unix)]
fn a_signal_lets_running_requests_end() {
    let mut server = Server::start(&["--ctx", "2048"]);
    let mut body = long();
    (body["max_tokens"], body["stream"]) = (60.into(), true.into());
    let reply = server.post("/v1/chat/completions", &body);
    server.signal("TERM");
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(server.wait(), Some(0));
    let mut server = Server::start(&["--ctx", "4096"]);
    (body["max_tokens"], body["stream"]) = (4000.into(), true.into());
    let _reply = server.post("/v1/chat/completions", &body);
    server.signal("TERM");
    server.wait_for("ending");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(130));
}

#[test]
fn figures_count() {
    let server = Server::start(&["--ctx", "512"]);
    let reply = server.chat(&json!({"messages": user("Hello!"), "max_tokens": 3}));
    let metrics = server.get("/metrics").text();
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(value("forge_generated_tokens_total"), "3");
    assert_eq!(value("forge_prompt_tokens_total"), reply["usage"]["prompt_tokens"].to_string());
    assert_eq!(value("forge_free_slots"), "4");
    assert!(
        metrics
            .contains("forge_http_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1")
    );
    assert!(metrics.contains("forge_first_token_seconds_bucket"));
}

#[test]
fn the_interface_describes_itself() {
    let server = server();
    let document = server.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let known: Vec<&String> = document["components"]["schemas"]["ChatRequest"]["properties"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    // What the document knows the server knows: no field of it is unknown.
    for field in known {
        let mut body = json!({"messages": user("x"), "max_tokens": 1});
        body[field] = json!({"\u{0}": 0});
        let reply = server.post("/v1/chat/completions", &body);
        if reply.status == 400 {
            let error = reply.json();
            let unknown = error["error"]["code"] == "unknown_parameter";
            assert!(!unknown || error["error"]["param"] != field.as_str(), "{error}");
        }
    }
}
