//! Commands that read and write model files.

use crate::common::{fixture, forge, forge_fails, forge_with};
use std::fs;
use std::path::Path;

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_converted_model_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (source, copy) = (fixture("hybrid-dense-tied"), path(folder.path(), "copy.ytf"));
    let table = forge(&["convert", &source, &copy]);
    assert!(table.contains("verified"), "{table}");
    let say = |model: &str| {
        forge(&["run", model, "hello", "--raw", "--max-tokens", "12", "-q", "--backend", "cpu"])
    };
    assert_eq!(say(&source), say(&copy));
    let message = forge_fails(&["convert", &source, &copy]);
    assert!(message.contains("exists"), "{message}");
    forge(&["convert", &source, &copy, "--type", "q8_0", "--overwrite"]);
    let message = forge_fails(&["convert", &copy, &path(folder.path(), "b.ytf"), "--type", "q4_0"]);
    assert!(message.contains("is quantised already"), "{message}");
    // Nothing else was left behind.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn the_embedded_file_is_what_the_converter_makes() {
    let roots = ["../shared", "../../shared", "../../../shared"];
    let found = roots
        .iter()
        .map(|root| Path::new(env!("CARGO_MANIFEST_DIR")).join(root).join("models/forge-tiny"));
    let Some(source) = found.into_iter().find(|path| path.is_dir()) else {
        println!("skipped: shared/models/forge-tiny is not beside the repository");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let made = path(folder.path(), "forge-tiny.ytf");
    forge(&["convert", source.to_str().unwrap(), &made, "--type", "q8_0"]);
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/forge-tiny.ytf");
    assert!(fs::read(made).unwrap() == fs::read(embedded).unwrap());
}

#[test]
fn files_that_are_no_models_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |model: &str| forge_fails(&["run", model, "hello", "--backend", "cpu"]);
    let missing = path(folder.path(), "missing.gguf");
    let message = run(&missing);
    assert!(message.starts_with(&missing) && message.contains("No such file"), "{message}");
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
    let message = run(folder.path().to_str().unwrap());
    assert!(message.contains("config.json: the file is missing"), "{message}");
    for (source, name) in [
        ("llama-dense/model-F16.gguf", "cut.gguf"),
        ("../../server/assets/forge-tiny.ytf", "cut.ytf"),
    ] {
        let bytes = fs::read(fixture(source)).unwrap();
        let cut = path(folder.path(), name);
        fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
        let message = run(&cut);
        assert!(message.contains(name), "{message}");
    }
    let text = path(folder.path(), "text.gguf");
    fs::write(&text, "hello").unwrap();
    let message = run(&text);
    assert!(message.contains("magic"), "{message}");
}

#[test]
fn weights_that_are_not_numbers_end_the_reply() {
    let folder = tempfile::tempdir().unwrap();
    let model = path(folder.path(), "nan.gguf");
    let mut bytes = fs::read(fixture("llama-dense/model-F16.gguf")).unwrap();
    // f16 NaN over the last matrix of the file.
    let end = bytes.len();
    for value in bytes[end - 4096..].chunks_exact_mut(2) {
        value.copy_from_slice(&0x7e00u16.to_le_bytes());
    }
    fs::write(&model, bytes).unwrap();
    let message = forge_fails(&["run", &model, "hello", "--raw", "--backend", "cpu"]);
    assert!(message.contains("not finite"), "{message}");
}

#[test]
fn inspect_tells_sizes_to_people_and_scripts() {
    let text = forge(&["inspect"]);
    assert!(text.contains("forge-tiny") && text.contains("layers.0.delta.qkv"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&forge(&["inspect", &fixture("llama-dense"), "--json"])).unwrap();
    assert_eq!(json["family"], "llama");
    assert!(json["parameters"].as_u64().unwrap() > 0);
}

#[test]
fn tokens_are_shown_and_control_tokens_are_text_unless_asked() {
    let tokens = |arguments: &[&str]| -> Vec<u64> {
        let text = forge(&[&["tokenize", "--json"], arguments].concat());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json.as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(tokens(&["<|im_end|>", "--special"]), [6137]);
    assert!(tokens(&["<|im_end|>"]).len() > 1);
    assert!(forge(&["tokenize", "Once upon"]).ends_with("2 tokens\n"));
}

#[test]
fn a_synthetic_model_loads_and_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let model = path(folder.path(), "synth.gguf");
    let sizes = ["--layers", "4", "--vocab", "2000", "--mtp"];
    let fixed = ["synth", &model, "--shape", "qwen3.5-0.8b", "--type", "q8_0"];
    let line = forge(&[&fixed[..], &sizes[..]].concat());
    assert!(line.contains("synth.gguf"), "{line}");
    assert!(forge_fails(&fixed).contains("exists"));
    let said = forge(&["run", &model, "hello", "--max-tokens", "3", "--backend", "cpu", "-q"]);
    assert!(!said.is_empty());
    let bench = ["bench", &model, "--backend", "cpu", "--json", "--prompt-tokens", "4"];
    let flags = ["--depths", "0,5", "--tokens", "2"];
    let report: serde_json::Value =
        serde_json::from_str(&forge(&[&bench[..], &flags[..]].concat())).unwrap();
    assert_eq!(report["backend"], "cpu");
    assert_eq!(report["sanity"]["repeatable"], true);
    assert_eq!(report["decode"].as_array().unwrap().len(), 2);
    assert!(report["prefill"][0]["tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn helpers_work() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = forge(&["completions", shell]);
        assert!(script.contains("forge") && script.contains("tokenize"), "{shell}");
    }
    let json: serde_json::Value = serde_json::from_str(&forge(&["doctor", "--json"])).unwrap();
    let cpu = json["backends"].as_array().unwrap().iter().find(|b| b["name"] == "cpu").unwrap();
    assert_eq!(cpu["usable"], true);
    assert!(forge(&["doctor"]).contains("cores"));
    assert!(forge(&["--help"]).contains("Complete a prompt"));
    assert_eq!(forge_with(&["run", "--nonsense"], "").status, Some(2));
}
