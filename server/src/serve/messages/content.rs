//! `/v1/messages`: system text and content blocks, and the messages that they are.

use crate::serve::error::ApiError;
use crate::serve::turns::Turns;
use forge_core::chat::Role;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Begins the signature of reasoning that the client did not want to see: the reasoning itself
/// follows, so that it is there again when the client sends the block back.
pub(super) const SEAL: &str = "forge:1:";

/// Lines that a client puts before the system text for the service it expects. They differ from one
/// request to the next, so nothing behind them would ever be found in the cache.
const VOLATILE: &str = "x-anthropic-";

/// A message of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    role: String,
    content: Value,
}

/// The system text: blocks joined, without volatile lines.
///
/// # Errors
/// Naming the block that is not text.
pub(super) fn system(system: Option<&Value>) -> Result<Option<String>, ApiError> {
    let joined = match system {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => stable(text).to_owned(),
        Some(blocks) => {
            let texts = texts(blocks, "system")?;
            texts.into_iter().map(stable).collect()
        }
    };
    Ok((!joined.is_empty()).then_some(joined))
}

/// A text without the volatile lines at its beginning.
fn stable(text: &str) -> &str {
    let mut rest = text;
    while is_volatile(rest) {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

fn is_volatile(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let name = line.split_once(':').map(|(name, _)| name).unwrap_or_default();
    name.len() > VOLATILE.len()
        && name.is_char_boundary(VOLATILE.len())
        && name[..VOLATILE.len()].eq_ignore_ascii_case(VOLATILE)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Adds the messages that `messages` are.
///
/// # Errors
/// Naming the message and block at fault.
pub(super) fn add(turns: &mut Turns, messages: &[Turn]) -> Result<(), ApiError> {
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        match message.role.as_str() {
            "user" => user(turns, &message.content, &format!("{at}.content"))?,
            "assistant" => assistant(turns, &message.content, &format!("{at}.content"))?,
            "system" => {
                let text = match &message.content {
                    Value::String(text) => stable(text).to_owned(),
                    blocks => texts(blocks, &format!("{at}.content"))?.concat(),
                };
                turns.message(Role::System, text);
            }
            other => {
                let reason = format!("{other:?} is not user, assistant or system");
                return Err(ApiError::invalid(format!("{at}.role"), reason));
            }
        }
        turns.close();
    }
    Ok(())
}

fn blocks<'a>(content: &'a Value, at: &str) -> Result<&'a [Value], ApiError> {
    let blocks = content.as_array().map(Vec::as_slice);
    blocks.ok_or_else(|| ApiError::invalid(at, "is neither text nor a list of blocks"))
}

fn kind(block: &Value) -> &str {
    block.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn text<'a>(block: &'a Value, key: &str, at: &str) -> Result<&'a str, ApiError> {
    let text = block.get(key).and_then(Value::as_str);
    text.ok_or_else(|| ApiError::invalid(format!("{at}.{key}"), "is missing, or no text"))
}

fn refuse(block: &Value, at: &str) -> ApiError {
    let kind = kind(block);
    let reason = match kind {
        "image" | "document" | "container_upload" => {
            format!("a block of type {kind:?}; this model reads text only")
        }
        _ => format!("a block of type {kind:?} does not go here"),
    };
    ApiError::invalid(at, reason)
}

/// Blocks of nothing but text.
fn texts<'a>(content: &'a Value, at: &str) -> Result<Vec<&'a str>, ApiError> {
    let read = |(index, block): (usize, &'a Value)| {
        let at = format!("{at}[{index}]");
        if kind(block) == "text" { text(block, "text", &at) } else { Err(refuse(block, &at)) }
    };
    blocks(content, at)?.iter().enumerate().map(read).collect()
}

/// Results come before the text that is said to them, in the order of the blocks.
fn user(turns: &mut Turns, content: &Value, at: &str) -> Result<(), ApiError> {
    if let Value::String(said) = content {
        turns.message(Role::User, said.as_str());
        return Ok(());
    }
    let mut said: Option<String> = None;
    for (index, block) in blocks(content, at)?.iter().enumerate() {
        let at = format!("{at}[{index}]");
        match kind(block) {
            "text" => said.get_or_insert_default().push_str(text(block, "text", &at)?),
            "tool_result" => {
                if let Some(said) = said.take() {
                    turns.message(Role::User, said);
                }
                turns.tool_result(text(block, "tool_use_id", &at)?, tool_result(block, &at)?);
            }
            _ => return Err(refuse(block, &at)),
        }
    }
    if let Some(said) = said {
        turns.message(Role::User, said);
    }
    Ok(())
}

/// What a tool answered. Templates have no place for a failure, so the text says it.
fn tool_result(block: &Value, at: &str) -> Result<String, ApiError> {
    let said = match block.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(content) => texts(content, &format!("{at}.content"))?.concat(),
    };
    match block.get("is_error") {
        None | Some(Value::Null | Value::Bool(false)) => Ok(said),
        Some(Value::Bool(true)) if said.is_empty() => Ok("Error".to_owned()),
        Some(Value::Bool(true)) => Ok(format!("Error: {said}")),
        Some(_) => Err(ApiError::invalid(format!("{at}.is_error"), "is no boolean")),
    }
}

fn assistant(turns: &mut Turns, content: &Value, at: &str) -> Result<(), ApiError> {
    if let Value::String(said) = content {
        turns.text(said);
        return Ok(());
    }
    for (index, block) in blocks(content, at)?.iter().enumerate() {
        let at = format!("{at}[{index}]");
        match kind(block) {
            "text" => turns.text(text(block, "text", &at)?),
            "thinking" => {
                let mut thought = text(block, "thinking", &at)?;
                let signature = block.get("signature").and_then(Value::as_str).unwrap_or_default();
                if thought.is_empty() {
                    thought = signature.strip_prefix(SEAL).unwrap_or_default();
                }
                if !thought.is_empty() {
                    turns.reasoning(thought);
                }
            }
            // Of another service, which alone can read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let input = match block.get("input") {
                    None | Some(Value::Null) => Map::new(),
                    Some(Value::Object(input)) => input.clone(),
                    Some(_) => {
                        return Err(ApiError::invalid(format!("{at}.input"), "is not an object"));
                    }
                };
                turns.call(text(block, "id", &at)?, text(block, "name", &at)?, input);
            }
            _ => return Err(refuse(block, &at)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forge_core::chat::Message;
    use serde_json::json;

    fn messages(value: Value) -> Result<Vec<Message>, ApiError> {
        let read: Vec<Turn> = serde_json::from_value(value).unwrap();
        let mut turns = Turns::default();
        add(&mut turns, &read)?;
        Ok(turns.finish())
    }

    #[test]
    fn blocks_become_messages() {
        let part = |text: &str| json!({"type": "text", "text": text});
        let messages = messages(json!([
            {"role": "user", "content": [part("a"), part(""), {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "redacted_thinking", "data": "xyz"},
                part("c"),
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [part("r"), part("1")]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": true},
                part("d"),
            ]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "forge:1:hidden"}, part("e")]},
            {"role": "assistant", "content": "f"},
            {"role": "system", "content": [part("g")]},
        ]))
        .unwrap();
        let said = |index: usize| {
            messages[index].content.as_ref().map(|content| content.to_text("").unwrap())
        };
        let told: Vec<(&str, Option<String>)> = messages
            .iter()
            .enumerate()
            .map(|(index, message)| (message.role.as_str(), said(index)))
            .collect();
        let expected = [
            ("user", "ab"),
            ("assistant", "c"),
            ("tool", "r1"),
            ("tool", "Error: no"),
            ("user", "d"),
            ("assistant", "e"),
            ("assistant", "f"),
            ("system", "g"),
        ];
        assert_eq!(told, expected.map(|(role, text)| (role, Some(text.to_owned()))));
        assert_eq!(messages[1].reasoning_content.as_deref(), Some("hm"));
        assert_eq!(messages[1].tool_calls.len(), 2);
        assert_eq!(messages[1].tool_calls[0].function.arguments, json!({"x": 1}));
        assert_eq!(messages[2].tool_call_id.as_deref(), Some("t1"));
        assert_eq!(messages[5].reasoning_content.as_deref(), Some("hidden"));
    }

    #[test]
    fn system_blocks_are_joined_without_what_changes() {
        let read = |value: Value| system(Some(&value)).unwrap();
        let block = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(read(json!([block("a"), block(""), block("b")])), read(json!("ab")));
        let header = "x-anthropic-billing-header: cc_version=2.1; cch=1f0;";
        assert_eq!(read(json!([block(header), block("a")])).as_deref(), Some("a"));
        assert_eq!(read(json!(format!("{header}\na\nb"))).as_deref(), Some("a\nb"));
        assert_eq!(read(json!(header)), None);
        for kept in ["x-anthropic-: no", "Say x-anthropic-a: b", "x-anthropic- a: b", "é"] {
            assert_eq!(read(json!(kept)).as_deref(), Some(kept));
        }
        assert_eq!(system(None).unwrap(), None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let user = |block: Value| json!([{"role": "user", "content": [block]}]);
        let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}});
        for (value, param) in [
            (user(image.clone()), "messages[0].content[0]"),
            (user(json!({"type": "document"})), "messages[0].content[0]"),
            (
                user(json!({"type": "tool_result", "tool_use_id": "t", "content": [image]})),
                "messages[0].content[0].content[0]",
            ),
            (user(json!({"type": "tool_result"})), "messages[0].content[0].tool_use_id"),
            (user(json!({"type": "text"})), "messages[0].content[0].text"),
            (user(json!({"type": "tool_use"})), "messages[0].content[0]"),
            (json!([{"role": "user", "content": 5}]), "messages[0].content"),
            (json!([{"role": "tool", "content": "x"}]), "messages[0].role"),
            (
                json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": "{}"}]}]),
                "messages[0].content[0].input",
            ),
        ] {
            let error = messages(value.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{value}");
            assert!(error.message.starts_with(param), "{}", error.message);
        }
        assert_eq!(
            system(Some(&json!([{"type": "image"}]))).unwrap_err().param.as_deref(),
            Some("system[0]")
        );
    }
}
