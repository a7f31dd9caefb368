//! `forge convert` and `forge eval` as a user runs them.

use crate::common::{fixture, forge, forge_fails, forge_with};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// A model that takes long enough to be killed at many places.
fn large(folder: &Path) -> String {
    let model = path(folder, "large.gguf");
    let shape = ["--shape", "qwen3.5-0.8b", "--layers", "4", "--vocab", "2048", "--type", "f16"];
    forge(&[&["synth", &model, "--mtp"], &shape[..]].concat());
    model
}

/// Whatever the moment at which a conversion is killed, no file appears that is not whole, nothing
/// that it leaves loads, and the next run with the same arguments completes it.
#[test]
fn a_killed_conversion_leaves_no_file_that_loads() {
    let folder = tempfile::tempdir().unwrap();
    let source = large(folder.path());
    let whole = path(folder.path(), "whole.ytf");
    forge(&["convert", &source, &whole, "--type", "q8_0"]);
    let expected = fs::read(&whole).unwrap();
    for end in ["ytf", "gguf"] {
        let target = path(folder.path(), &format!("m.{end}"));
        let part = path(folder.path(), &format!(".m.{end}.part"));
        let arguments = ["convert", &source, &target, "--type", "q8_0", "--jobs", "1"];
        let mut killed = 0;
        for wait_ms in [5, 40, 90, 160, 250] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_forge"))
                .args(arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            sleep(Duration::from_millis(wait_ms));
            let finished = child.try_wait().unwrap().is_some();
            // A kill that no process can catch.
            child.kill().unwrap();
            child.wait().unwrap();
            if finished {
                break;
            }
            killed += 1;
            if Path::new(&target).exists() {
                break;
            }
            if Path::new(&part).exists() {
                let outcome = forge_with(&["inspect", &part], "");
                assert_eq!(outcome.status, Some(1), "{outcome:?}");
            }
        }
        assert!(killed > 0, "no conversion was slow enough to be killed");
        if !Path::new(&target).exists() {
            let table = forge(&arguments);
            assert!(table.contains("verified"), "{table}");
        }
        if end == "ytf" {
            assert!(fs::read(&target).unwrap() == expected);
        }
        forge(&["convert", "--verify", &target, &source]);
        fs::remove_file(&target).unwrap();
    }
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    // A journal may outlive its part by a moment, and means nothing then.
    let left = names.filter(|name| !name.to_string_lossy().ends_with(".journal")).count();
    assert_eq!(left, 2);
}

#[test]
fn a_conversion_is_verified_again() {
    let folder = tempfile::tempdir().unwrap();
    let (source, other) = (fixture("qwen3-dense"), fixture("hybrid-dense-tied"));
    let target = path(folder.path(), "m.gguf");
    let keep = ["--keep", "*.attn.v=q8_0", "--keep", "embed=bf16"];
    let report =
        forge(&[&["convert", &source, &target, "--type", "q4_0", "--json"], &keep[..]].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    let tensors = report["tensors"].as_array().unwrap();
    let of = |name: &str| tensors.iter().find(|t| t["name"] == name).unwrap();
    assert_eq!(of("layers.0.attn.v")["to"], "q8_0");
    assert_eq!(of("embed")["to"], "bf16");
    assert_eq!(of("layers.0.ffn.up")["to"], "q4_0");
    assert!(tensors.iter().all(|t| t["within_limits"] == true));
    let table = forge(&["convert", "--verify", &target, &source]);
    assert!(table.contains("compared with"), "{table}");
    let message = forge_fails(&["convert", "--verify", &target, &other]);
    assert!(message.contains("config"), "{message}");
    let message = forge_fails(&["convert", &source, &path(folder.path(), "n.ytf"), "--jobs", "0"]);
    assert!(message.starts_with("jobs"), "{message}");
}

#[test]
fn gguf_sources_say_the_same_as_what_they_were_made_of() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["hybrid-dense-tied", "llama-dense", "qwen3-dense"] {
        let source = fixture(name);
        let target = path(folder.path(), &format!("{name}.gguf"));
        forge(&["convert", &source, &target]);
        let say = |model: &str| {
            let rest = ["hello", "--raw", "--max-tokens", "16", "-q", "--backend", "cpu"];
            forge(&[&["run", model], &rest[..]].concat())
        };
        assert_eq!(say(&source), say(&target), "{name}");
    }
}

#[test]
fn quality_is_a_gate() {
    let folder = tempfile::tempdir().unwrap();
    let source = fixture("qwen3-dense");
    let text = path(folder.path(), "text.txt");
    fs::write(&text, "A plain sentence about rivers and the towns beside them. ".repeat(60))
        .unwrap();
    let small = path(folder.path(), "small.ytf");
    forge(&["convert", &source, &small, "--type", "q4_0", "--calibrate", &text]);
    let base = ["--text", &text, "--backend", "cpu", "--ctx", "128", "--tokens", "512"];
    let none = ["--needles", "0"];
    let eval = |model: &str, more: &[&str]| {
        forge_with(&[&["eval", model], &base[..], &none[..], more].concat(), "")
    };
    let same = eval(&source, &["--against", &source, "--kv-type", "f32", "--json"]);
    let table: Value = serde_json::from_str(&same.out).unwrap();
    let row = &table["rows"][0];
    assert_eq!(row["divergence"]["mean_kl"], 0.0);
    assert_eq!(row["divergence"]["top1_agreement"], 1.0);
    assert!(row["perplexity"].as_f64().unwrap() > 1.0);
    let passed = eval(&small, &["--against", &source, "--max-kl", "1000"]);
    assert_eq!(passed.status, Some(0), "{passed:?}");
    let failed = eval(&small, &["--against", &source, "--max-kl", "0"]);
    assert_eq!(failed.status, Some(1), "{failed:?}");
    assert!(failed.err.contains("exceeds 0"), "{failed:?}");
    let both = eval(&source, &["--types", "q8_0,q4_0"]);
    let lines: Vec<&str> = both.out.lines().collect();
    assert!(lines[2].starts_with("| q8_0 |") && lines[3].starts_with("| q4_0 |"), "{both:?}");
    let message = forge_fails(&["eval", &source, "--text", &text, "--max-kl", "1"]);
    assert!(message.starts_with("max-kl"), "{message}");
}
