//! `forge run` and `forge chat` with the embedded model.

use crate::common::{forge, forge_fails, forge_with};
use std::io::Read;
use std::process::{Command, Stdio};

const CPU: [&str; 2] = ["--backend", "cpu"];

#[test]
fn the_embedded_model_continues_a_prompt() {
    let outcome =
        forge_with(&[&["run", "Once upon a time", "--max-tokens", "8"], &CPU[..]].concat(), "");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.out.starts_with(" there was a"), "{outcome:?}");
    assert!(outcome.err.contains("prompt 4 tokens, "), "{outcome:?}");
    assert!(outcome.err.contains("generated 8 tokens, "), "{outcome:?}");
}

#[test]
fn the_prompt_comes_from_standard_input_too() {
    let arguments = ["run", "Once upon a time", "--max-tokens", "6", "--backend", "cpu", "-q"];
    let expected = forge(&arguments);
    for prompt in [&["-"][..], &[]] {
        let arguments = [&["run"], prompt, &arguments[2..]].concat();
        let outcome = forge_with(&arguments, "Once upon a time\n");
        assert_eq!((outcome.status, &outcome.out), (Some(0), &expected));
        assert_eq!(outcome.err, "");
    }
}

#[test]
fn a_stop_string_over_several_tokens_is_never_shown() {
    let run = |stop: &[&str]| {
        let fixed = ["run", "Once upon a time", "--max-tokens", "24", "-q", "--backend", "cpu"];
        forge(&[&fixed[..], stop].concat())
    };
    let whole = run(&[]);
    let words: Vec<&str> = whole.split(' ').collect();
    // Three words and the spaces between them are at least three tokens.
    let stop = words[4..7].join(" ");
    let before = whole.split(&stop).next().unwrap();
    let stopped = run(&["--stop", "never said", "--stop", &stop]);
    assert_eq!(stopped.trim_end(), before.trim_end());
    assert!(!before.is_empty());
}

#[test]
fn a_seed_repeats_and_flags_reach_the_sampler() {
    let run = |flags: &[&str]| {
        let fixed = ["run", "The", "--max-tokens", "12", "-q", "--backend", "cpu"];
        forge(&[&fixed[..], flags].concat())
    };
    let hot = ["--temp", "1.5", "--seed", "7"];
    assert_eq!(run(&hot), run(&hot));
    assert_ne!(run(&hot), run(&["--temp", "1.5", "--seed", "8"]));
    assert_eq!(run(&["--temp", "1.5", "--top-k", "1"]), run(&["--temp", "0"]));
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_forge"))
        .args(["run", "Once upon a time", "--max-tokens", "200", "-q", "--backend", "cpu"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn bad_requests_are_one_line() {
    let run = |arguments: &[&str]| forge_fails(&[&["run"], arguments, &CPU[..]].concat());
    assert_eq!(run(&[""]), "prompt: is empty");
    let long = "word ".repeat(4200);
    let message = run(&[&long]);
    assert!(message.contains("tokens do not fit a context of 4096"), "{message}");
    let message = run(&["hello", "--temp", "-1"]);
    assert!(message.contains("temperature: -1 is outside 0..=100"), "{message}");
    assert_eq!(run(&["hello", "--stop", ""]), "stop: a stop string is empty");
    let message = run(&["hello", "--ctx", "100000"]);
    assert!(message.contains("ctx: 100000 exceeds the model's 4096"), "{message}");
}

#[test]
fn chat_remembers_and_reuses_the_conversation() {
    let arguments = ["chat", "--backend", "cpu", "--verbose", "--max-tokens", "16", "--ctx", "512"];
    let outcome = forge_with(
        &arguments,
        "My name is Paul.\nWhat is my name?\n/reset\n/nonsense\nMy name is Paul.\n/exit\nnever read\n",
    );
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    let answers: Vec<&str> = outcome.out.lines().collect();
    assert!(answers.iter().any(|line| line.contains("Paul")), "{outcome:?}");
    let stats: Vec<&str> = outcome.err.lines().filter(|line| line.starts_with("prompt ")).collect();
    assert_eq!(stats.len(), 3, "{outcome:?}");
    let cached: Vec<bool> = stats.iter().map(|line| line.contains("cached")).collect();
    assert_eq!(cached, [false, true, false], "{outcome:?}");
    assert!(outcome.err.contains("unknown command /nonsense"), "{outcome:?}");
    // A new conversation answers as the first did.
    assert_eq!(answers.first(), answers.last(), "{outcome:?}");
}

#[test]
fn the_template_is_used_when_it_is_asked_for() {
    let arguments = ["run", "What is 2 + 3?", "--chat", "--max-tokens", "16", "--backend", "cpu"];
    let outcome = forge_with(&arguments, "");
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(outcome.out.contains('5'), "{outcome:?}");
    let system = ["run", "Hi", "--system", "Be brief.", "--raw"];
    assert_eq!(forge_with(&system, "").status, Some(2));
}
