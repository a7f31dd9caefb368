use super::*;
use crate::models::{ModelSource, TextModel};
use crate::serve::grammar::{Answer, Grammars};
use crate::serve::tools::{ToolSet, ToolSyntax};
use serde_json::json;
use std::sync::{Arc, OnceLock};

struct Kit {
    model: Arc<TextModel>,
    grammars: Grammars,
}

fn kit() -> &'static Kit {
    static KIT: OnceLock<Kit> = OnceLock::new();
    KIT.get_or_init(|| {
        let model = Arc::new(TextModel::open(&ModelSource::Embedded).unwrap());
        let grammars = Grammars::new(Arc::clone(&model), model.stop_tokens[0]).unwrap();
        Kit { model, grammars }
    })
}

fn constraint(rules: Rules) -> ReplyConstraint {
    let model = &kit().model;
    ReplyConstraint::new(SteeringTokens::of(&model.tokenizer, &model.stop_tokens), rules)
}

/// Feeds `text`; the text up to the first token that is not allowed, and whether the end is.
fn follow(constraint: &mut ReplyConstraint, text: &str) -> (String, bool) {
    let model = &kit().model;
    let mut done = Vec::new();
    for token in model.tokenizer.encode(text, SpecialTokens::AsText).unwrap() {
        if !permits(constraint, token) {
            break;
        }
        constraint.accept(token).unwrap();
        done.push(token);
    }
    let end = model.stop_tokens.iter().all(|stop| permits(constraint, *stop));
    (model.tokenizer.decode(&done, false), end)
}

fn permits(constraint: &mut ReplyConstraint, token: TokenId) -> bool {
    match constraint.allowed().unwrap() {
        Allowed::Any => true,
        Allowed::Only(only) => only == token,
        Allowed::Mask(mask) => mask[token.index() / 32] >> (token.index() % 32) & 1 == 1,
    }
}

fn tools() -> ToolSet {
    let properties = json!({
        "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}
    });
    let parameters =
        json!({"type": "object", "properties": properties, "required": ["city", "days"]});
    ToolSet::parse(&[json!({"name": "weather", "parameters": parameters})]).unwrap()
}

#[test]
fn a_schema_is_obeyed_from_the_first_token_or_after_the_reasoning() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false});
    for in_reasoning in [false, true] {
        let answer = Answer { schema: Some(&schema), ..Answer::default() };
        let grammar = kit().grammars.compile(answer.lark(true).unwrap()).unwrap();
        let rules = Rules { in_reasoning, answer: Some(grammar), ..Rules::default() };
        let thoughts = if in_reasoning { "free text\n</think>\n\n" } else { "" };
        let text = format!("{thoughts}{{\"a\": 12}}");
        assert_eq!(follow(&mut constraint(rules.clone()), &text), (text, true));
        let text = format!("{thoughts}{{\"a\": \"x\"}}");
        let (followed, end) = follow(&mut constraint(rules.clone()), &text);
        assert!(followed.len() < text.len() && !end, "{followed}");
        // There is no answer yet, so the reply may not end.
        assert!(!follow(&mut constraint(rules), thoughts.trim_end()).1);
    }
}

#[test]
fn required_calls_have_their_form_and_types() {
    for (syntax, good) in [
        (
            ToolSyntax::QwenXml,
            "<tool_call>\n<function=weather>\n<parameter=city>\n<b>\nOslo\n</parameter>\n\
             <parameter=days>\n3\n</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            ToolSyntax::HermesJson,
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>",
        ),
    ] {
        let tools = tools();
        let answer = Answer { calls: Some((syntax, &tools)), parallel: true, ..Answer::default() };
        let rules = |parallel| Rules {
            answer: Some(
                kit()
                    .grammars
                    .compile(Answer { parallel, ..answer.clone() }.lark(false).unwrap())
                    .unwrap(),
            ),
            ..Rules::default()
        };
        assert_eq!(follow(&mut constraint(rules(true)), good), (good.into(), true));
        let two = format!("{good}\n{good}");
        assert_eq!(follow(&mut constraint(rules(true)), &two), (two.clone(), true));
        assert_eq!(follow(&mut constraint(rules(false)), &two), (good.into(), true));
        let bad = good.replace('3', "three");
        assert!(follow(&mut constraint(rules(true)), &bad).0.len() < bad.len());
        assert_eq!(follow(&mut constraint(rules(true)), "I will not"), (String::new(), false));
    }
}

#[test]
fn a_call_in_free_text_is_held_to_its_grammar() {
    let lark = Answer::call_lark(ToolSyntax::QwenXml, &tools()).unwrap();
    let rules = Rules {
        call: Some(kit().grammars.compile(lark).unwrap()),
        single_call: true,
        ..Rules::default()
    };
    let call = "Sure.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n\
        <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(
        follow(&mut constraint(rules.clone()), &format!("{call}\nmore")),
        (call.into(), true)
    );
    let unknown = "<tool_call>\n<function=other>";
    assert!(follow(&mut constraint(rules), unknown).0.len() < unknown.len());
}

#[test]
fn a_budget_closes_the_reasoning() {
    for budget in [0, 1, 5] {
        let rules = Rules { in_reasoning: true, budget: Some(budget), ..Rules::default() };
        let mut constraint = constraint(rules);
        let mut tokens = Vec::new();
        while constraint.phase != Phase::Answer {
            let word = kit().model.tokenizer.encode("a", SpecialTokens::AsText).unwrap()[0];
            let token = match constraint.allowed().unwrap() {
                Allowed::Only(token) => token,
                _ => word,
            };
            constraint.accept(token).unwrap();
            tokens.push(token);
        }
        let text = kit().model.tokenizer.decode(&tokens, false);
        assert_eq!(text, format!("{}{CUT}", "a".repeat(budget)));
        let close = kit().model.tokenizer.id_of(THINK_CLOSE).unwrap();
        assert!(!permits(&mut constraint, close));
    }
}

#[test]
fn with_reasoning_off_it_cannot_begin() {
    let open = kit().model.tokenizer.id_of(THINK_OPEN).unwrap();
    let mut off = constraint(Rules { no_reasoning: true, ..Rules::default() });
    assert!(!permits(&mut off, open));
    assert!(permits(&mut constraint(Rules::default()), open));
    follow(&mut off, "The tag <think> is text");
    assert_eq!(off.phase, Phase::Answer);
}
