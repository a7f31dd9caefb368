use super::schema::convert;
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn tools() -> ToolSet {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"}, "text": {"type": "string"}, "count": {"type": "integer"},
            "deep": {"type": "object"}, "maybe": {"type": ["integer", "null"]},
        },
        "required": ["path"],
    });
    let edit = json!({"type": "function", "function": {"name": "edit", "parameters": schema}});
    let list = json!({"type": "function", "name": "list"});
    ToolSet::parse(&[edit, list]).unwrap()
}

/// Text and calls (name, arguments) of a reply that arrives in `pieces`.
fn run(syntax: ToolSyntax, guarded: bool, pieces: &[&str]) -> (String, Vec<(String, String)>) {
    let mut parser = ToolParser::new(syntax, tools(), guarded);
    let mut events: Vec<_> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let (mut text, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for event in events {
        match event {
            ToolEvent::Text(piece) => text.push_str(&piece),
            ToolEvent::Start(name) => calls.push((name, String::new())),
            ToolEvent::Arguments(piece) => calls.last_mut().unwrap().1.push_str(&piece),
            ToolEvent::End => {}
        }
    }
    (text, calls)
}

fn characters(text: &str) -> Vec<&str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect()
}

const XML: &str = "Sure.\n\n<tool_call>\n<function=edit>\n<parameter=path>\na \"b\".py\n</parameter>\n\
    <parameter=text>\n    if x:\n        return 1\n\n</parameter>\n<parameter=count>\n5.0\n</parameter>\n\
    </function>\n</tool_call>\n<tool_call>\n<function=list>\n</function>\n</tool_call>\n";

#[test]
fn xml_calls_keep_every_space_and_have_their_types() {
    for guarded in [true, false] {
        for pieces in [vec![XML], characters(XML)] {
            let (text, calls) = run(ToolSyntax::QwenXml, guarded, &pieces);
            assert_eq!(text, "Sure.");
            let arguments: Value = serde_json::from_str(&calls[0].1).unwrap();
            let expected = json!({
                "path": "a \"b\".py", "text": "    if x:\n        return 1\n", "count": 5
            });
            assert_eq!(arguments, expected);
            assert_eq!(calls[1], ("list".into(), "{}".into()));
        }
    }
}

#[test]
fn arguments_arrive_while_the_value_does() {
    let mut parser = ToolParser::new(ToolSyntax::QwenXml, tools(), true);
    parser.push("<tool_call>\n<function=edit>\n<parameter=text>\n");
    assert_eq!(parser.push("\"ab\n"), [ToolEvent::Arguments("\\\"ab".into())]);
    // The held line end is text after all.
    assert_eq!(parser.push("</par"), []);
    assert_eq!(parser.push("ty"), [ToolEvent::Arguments("\\n</party".into())]);
}

#[test]
fn an_empty_value_and_a_tag_inside_a_value() {
    let call = |value: &str| {
        format!(
            "<tool_call>\n<function=edit>\n<parameter=text>{value}</parameter>\n</function>\n</tool_call>"
        )
    };
    for (value, expected) in
        [("\n\n", ""), ("\n", ""), ("", ""), ("\na</parameter>b\n", "a</parameter>b")]
    {
        let text = call(value);
        for pieces in [vec![text.as_str()], characters(&text)] {
            let (_, calls) = run(ToolSyntax::QwenXml, true, &pieces);
            assert_eq!(
                calls[0].1,
                json!({"text": expected}).to_string().replace(":", ": "),
                "{value:?}"
            );
        }
    }
}

#[test]
fn what_is_no_call_is_text() {
    let cases = [
        "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
        "<tool_call>\n<function=edit>\n<parameter=count>\nmany\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=edit>\n<parameter=path>\nx",
        "<tool_call>hello</tool_call> there",
        "a <tool_cal",
    ];
    for case in cases {
        for pieces in [vec![case], characters(case)] {
            assert_eq!(run(ToolSyntax::QwenXml, false, &pieces), (case.to_owned(), vec![]));
        }
    }
    // The tag alone, spelled out where the grammar does not see it.
    for case in ["x <tool_call> is a tag", "<tool_call>\n<function=unknown>\n", "a\n<tool_call>"] {
        for pieces in [vec![case], characters(case)] {
            assert_eq!(run(ToolSyntax::QwenXml, true, &pieces), (case.to_owned(), vec![]));
        }
    }
    let broken = "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"path\": \n</tool_call>";
    assert_eq!(run(ToolSyntax::HermesJson, false, &[broken]).0, broken);
}

#[test]
fn hermes_calls() {
    let call = "x\n<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"path\": \"}a\", \"deep\": {\"b\": [1]}}}\n</tool_call>";
    for guarded in [true, false] {
        for pieces in [vec![call], characters(call)] {
            let (text, calls) = run(ToolSyntax::HermesJson, guarded, &pieces);
            assert_eq!((text.as_str(), calls[0].0.as_str()), ("x", "edit"));
            let arguments: Value = serde_json::from_str(&calls[0].1).unwrap();
            assert_eq!(arguments, json!({"path": "}a", "deep": {"b": [1]}}));
        }
    }
    let quoted =
        "<tool_call>{\"name\":\"edit\",\"arguments\":\"{\\\"path\\\":\\\"a\\\"}\"}</tool_call>";
    assert_eq!(run(ToolSyntax::HermesJson, false, &[quoted]).1[0].1, "{\"path\":\"a\"}");
}

#[test]
fn types_come_from_the_schema_alone() {
    let string = json!({"type": "string"});
    for raw in ["02134", "1e5", "true", "null", "{}", " x "] {
        assert_eq!(convert(raw, Some(&string)), Some(raw.into()));
        assert_eq!(convert(raw, None), Some(raw.into()));
    }
    let integer = json!({"type": "integer"});
    assert_eq!(convert("10", Some(&integer)), Some(json!(10)));
    assert_eq!(convert("5.0", Some(&integer)), Some(json!(5)));
    assert_eq!(convert("5.5", Some(&integer)), None);
    assert_eq!(convert("True", Some(&json!({"type": "boolean"}))), Some(json!(true)));
    let nullable = json!({"anyOf": [{"type": "integer"}, {"type": "null"}]});
    assert_eq!(convert("null", Some(&nullable)), Some(Value::Null));
    assert_eq!(convert("7", Some(&nullable)), Some(json!(7)));
    let mixed = json!({"type": ["number", "string"]});
    assert_eq!(convert("1.5", Some(&mixed)), Some(json!(1.5)));
    assert_eq!(convert("one", Some(&mixed)), Some(json!("one")));
    assert_eq!(convert("[1]", Some(&json!({"type": "array"}))), Some(json!([1])));
}

#[test]
fn definitions_are_checked() {
    assert!(ToolSet::parse(&[json!({"type": "web_search"})]).is_err());
    assert!(ToolSet::parse(&[json!({"type": "function", "function": {}})]).is_err());
    assert!(ToolSet::parse(&[json!({"name": "f", "parameters": 1})]).is_err());
}

proptest! {
    #[test]
    fn pieces_do_not_matter_and_text_is_not_lost(
        text in "(a|\n|<tool_call>|</tool_call>|<function=list>|</function>|<| ){0,12}",
        cuts in prop::collection::vec(any::<bool>(), 120),
    ) {
        let mut pieces = vec![String::new()];
        for (c, cut) in text.chars().zip(cuts.iter().cycle()) {
            if *cut { pieces.push(String::new()); }
            pieces.last_mut().unwrap().push(c);
        }
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let whole = run(ToolSyntax::QwenXml, false, &[&text]);
        prop_assert_eq!(&run(ToolSyntax::QwenXml, false, &pieces), &whole);
        if whole.1.is_empty() {
            prop_assert_eq!(whole.0, text);
        }
    }
}
