//! `/v1/responses`: items of a request, and the messages that they are.

use super::store::ResponseStore;
use crate::serve::error::{ApiError, ErrorKind};
use crate::serve::reply::new_id;
use crate::serve::turns::Turns;
use forge_core::chat::Role;
use serde_json::{Map, Value, json};

/// Begins what forge calls encrypted reasoning: it is the reasoning itself, for clients that send
/// back nothing else of a reasoning item.
pub(super) const SEAL: &str = "forge:1:";

/// The items of `input`, each with an id; references are replaced by what they refer to.
///
/// # Errors
/// Naming the item at fault.
pub(super) fn items(input: Option<Value>, store: &ResponseStore) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
        Some(Value::Array(items)) => items,
        Some(_) => return Err(ApiError::invalid("input", "is neither text nor a list of items")),
    };
    items.into_iter().enumerate().map(|(index, item)| complete(item, index, store)).collect()
}

fn complete(item: Value, index: usize, store: &ResponseStore) -> Result<Value, ApiError> {
    let at = format!("input[{index}]");
    let Value::Object(mut item) = item else {
        return Err(ApiError::invalid(at, "is not an object"));
    };
    let kind = kind(&item).unwrap_or_default().to_owned();
    if kind == "item_reference" {
        let id = text(&item, "id", &at)?;
        return store.item(id).ok_or_else(|| {
            let message = format!("{at}.id: there is no item {id:?}");
            let param = Some(format!("{at}.id"));
            ApiError { param, ..ApiError::new(ErrorKind::NotFound, message) }
        });
    }
    if kind == "message" {
        let part = if item.get("role").is_some_and(|role| role == "assistant") {
            "output_text"
        } else {
            "input_text"
        };
        item.insert("type".into(), "message".into());
        if let Some(Value::String(text)) = item.get("content") {
            let parts = json!([{"type": part, "text": text}]);
            item.insert("content".into(), parts);
        }
    }
    if item.get("id").is_none_or(Value::is_null) {
        let prefix = match kind.as_str() {
            "message" => "msg_",
            "reasoning" => "rs_",
            "function_call" => "fc_",
            "custom_tool_call" => "ctc_",
            _ => "item_",
        };
        item.insert("id".into(), new_id(prefix).into());
    }
    Ok(Value::Object(item))
}

/// A message needs no type.
fn kind(item: &Map<String, Value>) -> Option<&str> {
    match item.get("type") {
        None | Some(Value::Null) if item.contains_key("role") => Some("message"),
        kind => kind?.as_str(),
    }
}

/// Adds the messages that `items` are. `at` names the list in errors.
///
/// # Errors
/// Naming the item, part or argument at fault.
pub(super) fn add(turns: &mut Turns, items: &[Value], at: &str) -> Result<(), ApiError> {
    for (index, item) in items.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let item = item.as_object().ok_or_else(|| ApiError::invalid(&at, "is not an object"))?;
        match kind(item).unwrap_or_default() {
            "message" => message(turns, item, &at)?,
            "reasoning" => {
                let text = reasoning(item, &at)?;
                if !text.is_empty() {
                    turns.reasoning(&text);
                }
            }
            "function_call" => {
                let arguments = match arguments(item, &at) {
                    // A call that was cut off was never made.
                    Err(_) if item.get("status").is_some_and(|s| s == "incomplete") => continue,
                    arguments => arguments?,
                };
                turns.call(text(item, "call_id", &at)?, text(item, "name", &at)?, arguments);
            }
            "custom_tool_call" => {
                let arguments =
                    Map::from_iter([("input".into(), text(item, "input", &at)?.into())]);
                turns.call(text(item, "call_id", &at)?, text(item, "name", &at)?, arguments);
            }
            "function_call_output" | "custom_tool_call_output" => {
                let output = content(item.get("output"), &format!("{at}.output"))?;
                turns.tool_result(text(item, "call_id", &at)?, output);
            }
            other => {
                let reason = format!(
                    "{other:?}; forge takes message, reasoning, function_call, \
                     function_call_output, custom_tool_call, custom_tool_call_output and \
                     item_reference"
                );
                return Err(ApiError::unsupported(&format!("{at}.type"), &reason));
            }
        }
    }
    Ok(())
}

fn message(turns: &mut Turns, item: &Map<String, Value>, at: &str) -> Result<(), ApiError> {
    let said = content(item.get("content"), &format!("{at}.content"))?;
    let role = match item.get("role").and_then(Value::as_str).unwrap_or_default() {
        "assistant" => {
            if turns.has_text() {
                turns.close();
            }
            turns.text(&said);
            return Ok(());
        }
        "user" => Role::User,
        "system" => Role::System,
        "developer" => Role::Developer,
        other => {
            let reason = format!("{other:?} is not user, assistant, system or developer");
            return Err(ApiError::invalid(format!("{at}.role"), reason));
        }
    };
    turns.message(role, said);
    Ok(())
}

/// A text, or the texts of parts.
fn content(content: Option<&Value>, at: &str) -> Result<String, ApiError> {
    let parts = match content {
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(parts)) => parts,
        _ => return Err(ApiError::invalid(at, "is neither text nor a list of parts")),
    };
    let mut joined = String::new();
    for (index, part) in parts.iter().enumerate() {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let text = match kind {
            "input_text" | "output_text" | "text" => part.get("text"),
            "refusal" => part.get("refusal"),
            _ => {
                let reason = format!("a part of type {kind:?}; this model reads text only");
                return Err(ApiError::invalid(format!("{at}[{index}]"), reason));
            }
        };
        let text = text.and_then(Value::as_str);
        joined.push_str(
            text.ok_or_else(|| ApiError::invalid(format!("{at}[{index}].text"), "is no text"))?,
        );
    }
    Ok(joined)
}

/// The reasoning of an item: its content, else its seal, else its summary. That of another server,
/// sealed for that server alone, is nothing.
fn reasoning(item: &Map<String, Value>, at: &str) -> Result<String, ApiError> {
    let texts = |key: &str| -> Result<String, ApiError> {
        let at = format!("{at}.{key}");
        let parts = match item.get(key) {
            None | Some(Value::Null) => return Ok(String::new()),
            Some(Value::Array(parts)) => parts,
            Some(_) => return Err(ApiError::invalid(at, "is not a list of parts")),
        };
        let texts = parts.iter().enumerate().map(|(index, part)| {
            let text = part.get("text").and_then(Value::as_str);
            text.ok_or_else(|| ApiError::invalid(format!("{at}[{index}].text"), "is no text"))
        });
        Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n\n"))
    };
    let content = texts("content")?;
    if !content.is_empty() {
        return Ok(content);
    }
    let sealed = item.get("encrypted_content").and_then(Value::as_str);
    match sealed.and_then(|sealed| sealed.strip_prefix(SEAL)) {
        Some(text) => Ok(text.to_owned()),
        None => texts("summary"),
    }
}

/// Arguments of a call: the text of an object. Nothing is an empty one.
fn arguments(item: &Map<String, Value>, at: &str) -> Result<Map<String, Value>, ApiError> {
    let at = format!("{at}.arguments");
    match item.get("arguments") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(arguments)) => Ok(arguments.clone()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Map::new()),
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|error| ApiError::invalid(at, format!("is not a JSON object: {error}"))),
        Some(_) => Err(ApiError::invalid(at, "is not the text of a JSON object")),
    }
}

fn text<'a>(item: &'a Map<String, Value>, key: &str, at: &str) -> Result<&'a str, ApiError> {
    let text = item.get(key).and_then(Value::as_str);
    text.ok_or_else(|| ApiError::invalid(format!("{at}.{key}"), "is missing, or no text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forge_core::chat::Message;

    fn messages(input: Value) -> Result<Vec<Message>, ApiError> {
        let items = items(Some(input), &ResponseStore::new(0))?;
        let mut turns = Turns::default();
        add(&mut turns, &items, "input")?;
        Ok(turns.finish())
    }

    #[test]
    fn a_chain_of_calls_keeps_its_reasoning() {
        let sealed = format!("{SEAL}look again");
        let messages = messages(json!([
            {"role": "developer", "content": "be brief"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "look"}]},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{\"path\":\".\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": sealed},
            {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** x"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "gAAAA"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        ]))
        .unwrap();
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(
            roles,
            ["developer", "user", "assistant", "tool", "assistant", "tool", "assistant"]
        );
        let reasoning = |index: usize| messages[index].reasoning_content.as_deref();
        assert_eq!(
            (reasoning(2), reasoning(4), reasoning(6)),
            (Some("look"), Some("look again"), Some("short"))
        );
        assert_eq!(messages[2].tool_calls[0].function.arguments, json!({"path": "."}));
        assert_eq!(messages[3].content, Some("ab".into()));
        assert_eq!(messages[4].tool_calls[0].function.arguments, json!({"input": "*** x"}));
        assert_eq!(messages[6].content, Some("x".into()));
    }

    #[test]
    fn text_is_a_message_and_parts_are_joined() {
        assert_eq!(messages(json!("hi")).unwrap()[0], Message::new(Role::User, "hi"));
        let part = |text: &str| json!({"type": "input_text", "text": text});
        let parts = json!([{"role": "user", "content": [part("a"), part(""), part("bc")]}]);
        assert_eq!(messages(parts).unwrap()[0], Message::new(Role::User, "abc"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let call = |arguments: Value| json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}]);
        for (input, param) in [
            (json!(5), "input"),
            (json!(["x"]), "input[0]"),
            (json!([{"type": "computer_call"}]), "input[0].type"),
            (json!([{"role": "robot", "content": "x"}]), "input[0].role"),
            (json!([{"role": "user"}]), "input[0].content"),
            (
                json!([{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]),
                "input[1].content[0]",
            ),
            (
                json!([{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}]),
                "input[0].output[0]",
            ),
            (json!([{"type": "function_call_output", "output": "x"}]), "input[0].call_id"),
            (call(json!("[1]")), "input[0].arguments"),
            (call(json!("{")), "input[0].arguments"),
            (call(json!([])), "input[0].arguments"),
            (json!([{"type": "item_reference", "id": "msg_0"}]), "input[0].id"),
        ] {
            let error = messages(input.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{input}");
        }
        for arguments in [json!(""), json!("{}"), json!({}), Value::Null] {
            assert!(messages(call(arguments)).is_ok());
        }
        let mut cut = call(json!("{\"a\":"));
        cut[0]["status"] = "incomplete".into();
        assert_eq!(messages(cut).unwrap(), []);
    }

    #[test]
    fn items_get_ids_and_messages_parts() {
        let input = json!([{"role": "assistant", "content": "x"}, {"role": "user", "content": "y", "id": "mine"}]);
        let items = items(Some(input), &ResponseStore::new(0)).unwrap();
        assert!(items[0]["id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!(items[0]["content"][0]["type"], "output_text");
        assert_eq!(items[1]["id"], "mine");
        assert_eq!(items[1]["content"][0], json!({"type": "input_text", "text": "y"}));
    }
}
