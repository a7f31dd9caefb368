//! Several models, one at a time.

use crate::chat::user;
use crate::client::Server;
use serde_json::{Value, json};
use std::path::Path;

fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/forge-tiny.ytf");
    for name in names {
        std::fs::copy(&tiny, folder.path().join(format!("{name}.ytf"))).unwrap();
    }
    folder
}

fn ask(server: &Server, model: &str) -> (u16, Value) {
    let body = json!({"model": model, "messages": user("Hello!"), "max_tokens": 4});
    let reply = server.post("/v1/chat/completions", &body);
    (reply.status, reply.json())
}

#[test]
fn the_model_field_chooses_and_the_reply_says_who_answered() {
    let folder = folder(&["a", "Женя 田"]);
    let server = Server::start(&[
        "--models-dir",
        folder.path().to_str().unwrap(),
        "--ctx",
        "512",
        "--alias",
        "gpt",
    ]);
    let models = server.get("/v1/models").json();
    let ids: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["forge-tiny", "a", "Женя 田"]);
    assert_eq!(models["data"][0]["aliases"], json!(["gpt"]));
    for (asked, answered) in
        [("gpt", "forge-tiny"), ("a", "a"), ("Женя 田", "Женя 田"), ("forge-tiny", "forge-tiny")]
    {
        let (status, reply) = ask(&server, asked);
        assert_eq!((status, &reply["model"]), (200, &json!(answered)));
    }
    let (status, error) = ask(&server, "b");
    assert_eq!(status, 404);
    assert!(
        error["error"]["message"].as_str().unwrap().contains("forge-tiny, a, Женя 田"),
        "{error}"
    );
    assert_eq!(server.get("/v1/models/a").json()["id"], "a");
    assert_eq!(server.get("/v1/models/b").status, 404);
}

#[test]
fn two_clients_of_two_models_both_get_their_answers() {
    let folder = folder(&["a", "b"]);
    let server = Server::start(&["--models-dir", folder.path().to_str().unwrap(), "--ctx", "512"]);
    std::thread::scope(|scope| {
        for model in ["a", "b", "a", "b"] {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..6 {
                    let (status, reply) = ask(server, model);
                    assert_eq!((status, &reply["model"]), (200, &json!(model)));
                }
            });
        }
    });
    let metrics = server.get("/metrics").text();
    let loads = metrics.lines().find_map(|line| line.strip_prefix("forge_model_loads_total "));
    let loads: usize = loads.unwrap().parse().unwrap();
    assert!(loads <= 12, "{loads} loads for 24 requests");
    server.wait_idle();
}

#[test]
fn a_model_that_cannot_be_loaded_leaves_the_old_one() {
    let folder = folder(&["good"]);
    std::fs::write(folder.path().join("bad.ytf"), "not a model").unwrap();
    let server = Server::start(&["--models-dir", folder.path().to_str().unwrap(), "--ctx", "512"]);
    for _ in 0..2 {
        let (status, error) = ask(&server, "bad");
        assert_eq!(status, 503, "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains("bad"));
        let health = server.get("/health");
        assert_eq!(health.status, 200);
        let health = health.json();
        assert_eq!(
            (&health["model"], &health["failed"]["model"]),
            (&json!("forge-tiny"), &json!("bad"))
        );
        assert_eq!(ask(&server, "forge-tiny").0, 200);
    }
    assert_eq!(ask(&server, "good").0, 200);
}

#[test]
fn a_first_model_that_cannot_be_loaded_ends_the_program() {
    let folder = folder(&[]);
    let path = folder.path().join("bad.ytf");
    std::fs::write(&path, "not a model").unwrap();
    let mut server = Server::spawn(&[path.to_str().unwrap()], &[]);
    assert_eq!(server.wait(), Some(1));
}
