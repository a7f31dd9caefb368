//! Tokenizer and template of the embedded model, as a fresh clone has them. The rest (real
//! vocabularies and templates, malformed ones) is tested beside the code.

use forge_core::TokenId;
use forge_core::chat::{ChatTemplate, Conversation, RenderOptions, TemplateTokens};
use forge_core::tokenizer::{SpecialTokens, Tokenizer};
use forge_tests::fixtures::{embedded, json, list, own, text, token_ids, tokenizer};
use serde_json::{Value, json as value};

fn golden() -> Value {
    json(&own("tests/fixtures/forge-tiny/golden.json"))
}

fn streamed(tokenizer: &Tokenizer, ids: &[TokenId]) -> String {
    let mut stream = tokenizer.stream_decoder(false);
    let mut text: String = ids.iter().filter_map(|id| stream.push(*id)).collect();
    text.extend(stream.finish());
    text
}

#[test]
fn golden_texts_encode_and_stream() {
    let tokenizer = tokenizer(&embedded());
    for case in list(&golden()["cases"]) {
        let (prompt, output) = (text(&case["prompt"]), text(&case["output"]));
        let ids = tokenizer.encode_prompt(prompt, SpecialTokens::Parse).unwrap();
        assert_eq!(ids, token_ids(&case["prompt_ids"]), "{}", case["name"]);
        assert_eq!(streamed(&tokenizer, &ids), prompt);
        let ids = token_ids(&case["output_ids"]);
        assert_eq!(streamed(&tokenizer, &ids), output);
        assert_eq!(tokenizer.decode(&ids, false), output);
    }
}

#[test]
fn golden_prompts_come_from_the_template() {
    let checkpoint = embedded();
    let tokenizer = tokenizer(&checkpoint);
    let source = checkpoint.chat_template.as_deref().unwrap();
    let template = ChatTemplate::new(source, TemplateTokens::of(&tokenizer)).unwrap();
    let cases = [
        ("story", "Write a short story about a fox and a lantern.", None),
        ("math_think", "What is 47 + 385?", Some(true)),
        ("define", "What does lantern mean?", None),
        ("code_rust", "Write a Rust function that computes the factorial of a number.", None),
    ];
    for (name, user, enable_thinking) in cases {
        let conversation: Conversation =
            serde_json::from_value(value!({"messages": [{"role": "user", "content": user}]}))
                .unwrap();
        let options = RenderOptions {
            add_generation_prompt: true,
            enable_thinking,
            ..RenderOptions::default()
        };
        let rendered = template.render(&conversation, &options).unwrap();
        let golden = golden();
        let case = list(&golden["cases"]).iter().find(|c| c["name"] == name).unwrap();
        assert_eq!(rendered.text(), text(&case["prompt"]), "{name}");
        assert_eq!(rendered.encode(&tokenizer).unwrap(), token_ids(&case["prompt_ids"]), "{name}");
    }
}

#[test]
fn control_tokens_that_a_user_writes_are_text() {
    let checkpoint = embedded();
    let tokenizer = tokenizer(&checkpoint);
    let source = checkpoint.chat_template.as_deref().unwrap();
    let template = ChatTemplate::new(source, TemplateTokens::of(&tokenizer)).unwrap();
    let specials = |user: &str| {
        let messages = value!({"messages": [{"role": "user", "content": user}]});
        let conversation: Conversation = serde_json::from_value(messages).unwrap();
        let rendered = template.render(&conversation, &RenderOptions::default()).unwrap();
        assert!(rendered.text().contains(user), "{}", rendered.text());
        let ids = rendered.encode(&tokenizer).unwrap();
        assert_eq!(tokenizer.decode(&ids, false), rendered.text());
        ids.into_iter().filter(|id| tokenizer.is_special(*id)).count()
    };
    let plain = specials("Hello.");
    let texts: Vec<String> = tokenizer.special_texts().map(str::to_owned).collect();
    assert!(texts.len() >= 2, "{texts:?}");
    for special in texts {
        assert_eq!(specials(&format!("a{special}system\nb")), plain, "{special}");
        let ids = tokenizer.encode(&special, SpecialTokens::AsText).unwrap();
        assert!(ids.iter().all(|id| !tokenizer.is_special(*id)), "{special}");
        assert_eq!(tokenizer.decode(&ids, true), special);
    }
}
