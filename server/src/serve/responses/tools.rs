//! `/v1/responses`: tools and tool choice.

use crate::serve::error::ApiError;
use crate::serve::openai::fields;
use crate::serve::request::ToolChoice;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Tools that run at OpenAI, which clients offer without being asked to. A model does without.
const IGNORED: [&str; 4] =
    ["web_search", "web_search_2025_08_26", "web_search_preview", "image_generation"];

/// The tools of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tools {
    /// Definitions as templates have them.
    pub(super) definitions: Vec<Value>,
    /// Names of those that take free text.
    pub(super) custom: HashSet<String>,
    /// What was not taken up, for a header of the response.
    pub(super) ignored: Vec<String>,
}

/// Reads `tools`.
///
/// # Errors
/// Naming the tool or field that cannot be had.
pub(super) fn tools(tools: &[Value]) -> Result<Tools, ApiError> {
    let mut read = Tools::default();
    for (index, tool) in tools.iter().enumerate() {
        let at = format!("tools[{index}]");
        let fields = tool.as_object().ok_or_else(|| ApiError::invalid(&at, "is not an object"))?;
        match fields.get("type").and_then(Value::as_str).unwrap_or_default() {
            // The nesting of Chat Completions is taken too.
            "function" => match fields.get("function").and_then(Value::as_object) {
                Some(nested) => read.definitions.push(function(nested, &format!("{at}.function"))?),
                None => read.definitions.push(function(fields, &at)?),
            },
            "custom" => {
                let (definition, ignored) = custom(fields, &at)?;
                if let Some(name) = fields.get("name").and_then(Value::as_str) {
                    read.custom.insert(name.to_owned());
                }
                read.definitions.push(definition);
                read.ignored.extend(ignored);
            }
            kind if IGNORED.contains(&kind) => read.ignored.push(format!("{at} ({kind})")),
            kind => {
                let reason = format!("{kind:?}; forge takes function and custom tools");
                return Err(ApiError::unsupported(&format!("{at}.type"), &reason));
            }
        }
    }
    Ok(read)
}

fn check(fields: &Map<String, Value>, own: &[&str], at: &str) -> Result<(), ApiError> {
    let shared = ["type", "name", "description", "defer_loading", "async", "allowed_callers"];
    let known = |key: &&String| shared.contains(&key.as_str()) || own.contains(&key.as_str());
    if let Some(odd) = fields.keys().find(|key| !known(key)) {
        return Err(ApiError::invalid(format!("{at}.{odd}"), "there is no such field"));
    }
    let name = |key: &str| format!("{at}.{key}");
    let (defer, asynchronous, callers) =
        (name("defer_loading"), name("async"), name("allowed_callers"));
    fields::refuse([
        (
            defer.as_str(),
            fields.get("defer_loading"),
            &[json!(false)],
            "every tool is shown at once",
        ),
        (asynchronous.as_str(), fields.get("async"), &[json!(false)], "calls end a reply"),
        (
            callers.as_str(),
            fields.get("allowed_callers"),
            &[json!(["direct"]), json!([])],
            "the model is the only caller",
        ),
    ])
}

/// Only what the model needs to know, so that all APIs show it the same.
fn definition(
    fields: &Map<String, Value>,
    description: Option<String>,
    parameters: Option<Value>,
    at: &str,
) -> Result<Value, ApiError> {
    let name = fields.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| ApiError::invalid(format!("{at}.name"), "is missing"))?;
    let mut function = Map::from_iter([("name".to_owned(), Value::from(name))]);
    function.extend(description.map(|text| ("description".to_owned(), text.into())));
    function.extend(parameters.map(|schema| ("parameters".to_owned(), schema)));
    Ok(json!({"type": "function", "function": function}))
}

fn function(fields: &Map<String, Value>, at: &str) -> Result<Value, ApiError> {
    // `strict`: calls are always held to their schema. `output_schema`: nothing is checked by it.
    check(fields, &["parameters", "strict", "output_schema"], at)?;
    let parameters = fields.get("parameters").filter(|schema| !schema.is_null());
    if parameters.is_some_and(|schema| !schema.is_object()) {
        return Err(ApiError::invalid(format!("{at}.parameters"), "is not a JSON schema"));
    }
    definition(fields, description(fields), parameters.cloned(), at)
}

fn description(fields: &Map<String, Value>) -> Option<String> {
    fields.get("description").and_then(Value::as_str).map(str::to_owned)
}

/// A custom tool: a function of one text. A grammar is told to the model, but not enforced.
fn custom(fields: &Map<String, Value>, at: &str) -> Result<(Value, Option<String>), ApiError> {
    check(fields, &["format"], at)?;
    let format = fields.get("format").filter(|format| !format.is_null());
    let grammar = match format.map(|format| format.get("type").and_then(Value::as_str)) {
        None | Some(Some("text")) => None,
        Some(Some("grammar")) => {
            let text = |key: &str| format.and_then(|f| f.get(key)).and_then(Value::as_str);
            let definition = text("definition").ok_or_else(|| {
                ApiError::invalid(format!("{at}.format.definition"), "is missing")
            })?;
            Some(format!(
                "The input obeys this {} grammar:\n{definition}",
                text("syntax").unwrap_or("lark")
            ))
        }
        Some(_) => {
            return Err(ApiError::invalid(format!("{at}.format.type"), "is not text or grammar"));
        }
    };
    let ignored = grammar.as_ref().map(|_| format!("{at}.format (told, not enforced)"));
    let told = description(fields).into_iter().chain(grammar).collect::<Vec<_>>().join("\n\n");
    let told = (!told.is_empty()).then_some(told);
    let parameters = json!({
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": false,
    });
    Ok((definition(fields, told, Some(parameters), at)?, ignored))
}

/// Reads `tool_choice`.
///
/// # Errors
/// For a form that forge does not offer.
pub(super) fn tool_choice(choice: Option<&Value>) -> Result<ToolChoice, ApiError> {
    match choice {
        Some(Value::Object(fields)) if fields.get("type").is_some_and(|kind| kind == "custom") => {
            let name = fields.get("name").and_then(Value::as_str);
            let missing = || ApiError::invalid("tool_choice.name", "is missing");
            Ok(ToolChoice::Named(name.ok_or_else(missing)?.to_owned()))
        }
        choice => fields::tool_choice(choice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_flat_and_nested_are_the_same_and_custom_tools_take_a_text() {
        let schema = json!({"type": "object", "properties": {}});
        let flat = json!({"type": "function", "name": "f", "description": "d", "strict": false, "parameters": schema});
        let nested = json!({"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}});
        let read = tools(&[flat, nested]).unwrap();
        assert_eq!(read.definitions[0], read.definitions[1]);
        let custom = tools(&[
            json!({"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}}),
            json!({"type": "web_search", "external_web_access": false}),
        ])
        .unwrap();
        assert!(custom.custom.contains("patch"));
        assert_eq!(
            custom.ignored,
            ["tools[0].format (told, not enforced)", "tools[1] (web_search)"]
        );
        let text = custom.definitions[0]["function"]["description"].as_str().unwrap();
        assert!(text.contains("start: /x/"), "{text}");
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        for (tool, param) in [
            (json!("f"), "tools[0]"),
            (json!({"type": "local_shell"}), "tools[0].type"),
            (json!({"type": "mcp"}), "tools[0].type"),
            (json!({"type": "function"}), "tools[0].name"),
            (json!({"type": "function", "name": "f", "parameters": 5}), "tools[0].parameters"),
            (json!({"type": "function", "name": "f", "odd": 5}), "tools[0].odd"),
            (json!({"type": "function", "name": "f", "async": true}), "tools[0].async"),
            (
                json!({"type": "custom", "name": "f", "format": {"type": "x"}}),
                "tools[0].format.type",
            ),
        ] {
            let error = tools(std::slice::from_ref(&tool)).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{tool}");
        }
        let named = tool_choice(Some(&json!({"type": "custom", "name": "p"}))).unwrap();
        assert_eq!(named, ToolChoice::Named("p".into()));
        let flat = tool_choice(Some(&json!({"type": "function", "name": "f"}))).unwrap();
        assert_eq!(flat, ToolChoice::Named("f".into()));
        assert!(tool_choice(Some(&json!({"type": "allowed_tools"}))).is_err());
    }
}
