//! Conversations as the APIs carry them, and as templates want them.

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Role {
    /// The operator's instructions.
    System,
    /// The newer name of [`System`](Self::System).
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
    /// Any other name; the template decides.
    Other(String),
}

impl Role {
    /// Name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Other(name) => name,
        }
    }
}

impl From<String> for Role {
    fn from(name: String) -> Self {
        match name.as_str() {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            _ => Self::Other(name),
        }
    }
}

impl From<Role> for String {
    fn from(role: Role) -> Self {
        role.as_str().to_owned()
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// A list of parts, `{"type": "text", "text": …}`.
    Parts(Vec<Value>),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(parts) => Ok(Self::Parts(parts)),
            _ => Err(serde::de::Error::custom("content is neither text nor a list of parts")),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Content {
    /// The text, parts joined as they are. `field` names the content in an error.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the first part that is not text.
    pub fn to_text(&self, field: &str) -> Result<String> {
        let parts = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::Parts(parts) => parts,
        };
        let mut text = String::new();
        for (index, part) in parts.iter().enumerate() {
            text.push_str(part_text(part).ok_or_else(|| {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or("unknown");
                let reason = format!("a part of type {kind:?}; this model reads text only");
                Error::invalid(format!("{field}[{index}]"), reason)
            })?);
        }
        Ok(text)
    }
}

fn part_text(part: &Value) -> Option<&str> {
    if let Value::String(text) = part {
        return Some(text);
    }
    let kind = part.get("type").and_then(Value::as_str);
    match kind {
        None | Some("text" | "input_text" | "output_text") => part.get("text")?.as_str(),
        Some("refusal") => part.get("refusal")?.as_str(),
        Some(_) => None,
    }
}

/// A call of a function by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Name that the result refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kind of tool, `function`.
    #[serde(rename = "type", default = "function_kind")]
    pub kind: String,
    /// The call.
    pub function: FunctionCall,
}

fn function_kind() -> String {
    "function".to_owned()
}

/// Name and arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Function.
    pub name: String,
    /// Arguments: an object, or the text of one as the OpenAI API has it.
    #[serde(default)]
    pub arguments: Value,
}

impl FunctionCall {
    /// The arguments as an object; absent ones and empty text are an empty object. `field` names
    /// them in an error.
    ///
    /// # Errors
    /// [`Error::Invalid`] for text that is not JSON, or JSON that is not an object.
    pub fn arguments(&self, field: &str) -> Result<Map<String, Value>> {
        let parsed;
        let value = match &self.arguments {
            Value::String(text) if text.trim().is_empty() => &Value::Null,
            Value::String(text) => {
                parsed = serde_json::from_str(text)
                    .map_err(|e| Error::invalid(field, format!("not JSON: {e}")))?;
                &parsed
            }
            value => value,
        };
        match value {
            Value::Object(arguments) => Ok(arguments.clone()),
            Value::Null => Ok(Map::new()),
            other => Err(Error::invalid(field, format!("{other} is not an object"))),
        }
    }
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Speaker.
    pub role: Role,
    /// What is said; `null` beside tool calls.
    #[serde(default)]
    pub content: Option<Content>,
    /// The model's reasoning before the content.
    #[serde(default, alias = "reasoning", skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls that the model makes.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fields that forge does not know, for templates that do.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ToolCall>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Message {
    /// A message of plain text.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Self {
            role,
            content: Some(content.into()),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            other: Map::new(),
        }
    }

    /// The message as templates expect it: text content, arguments as objects. `no_content` is
    /// what an absent content becomes; `index` names the message in an error.
    fn to_template(&self, index: usize, names: &Names, no_content: &Value) -> Result<Value> {
        let field = |name: &str| format!("messages[{index}].{name}");
        let role = match &self.role {
            Role::Developer if !names.developer => Role::System.as_str(),
            role => role.as_str(),
        };
        let content = match &self.content {
            Some(content) => Value::String(content.to_text(&field("content"))?),
            None => no_content.clone(),
        };
        let mut message = Map::new();
        message.insert("role".into(), role.into());
        message.insert("content".into(), content);
        if let Some(reasoning) = &self.reasoning_content {
            message.insert("reasoning_content".into(), reasoning.as_str().into());
        }
        if !self.tool_calls.is_empty() {
            let mut calls = Vec::with_capacity(self.tool_calls.len());
            for (call_index, call) in self.tool_calls.iter().enumerate() {
                let at = field(&format!("tool_calls[{call_index}].function.arguments"));
                let arguments = call.function.arguments(&at)?;
                let mut value = Map::new();
                if let Some(id) = &call.id {
                    value.insert("id".into(), id.as_str().into());
                }
                value.insert("type".into(), call.kind.as_str().into());
                let function = json!({"name": call.function.name, "arguments": arguments});
                value.insert("function".into(), function);
                calls.push(Value::Object(value));
            }
            message.insert("tool_calls".into(), Value::Array(calls));
        }
        for (key, value) in [("tool_call_id", &self.tool_call_id), ("name", &self.name)] {
            if let Some(value) = value {
                message.insert(key.into(), value.as_str().into());
            }
        }
        message.extend(self.other.iter().map(|(key, value)| (key.clone(), value.clone())));
        Ok(Value::Object(message))
    }
}

/// What a template distinguishes, read off its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// It knows the role `developer`.
    pub(super) developer: bool,
    /// It tests for a content that is none.
    pub(super) none: bool,
}

/// A whole conversation and the tools that the model may call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Turns, oldest first.
    pub messages: Vec<Message>,
    /// Tool definitions, `{"type": "function", "function": {…}}`; the flat form
    /// `{"type": "function", "name": …}` is brought into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
}

impl Conversation {
    /// Messages and tools as templates expect them.
    pub(super) fn to_template(&self, names: &Names) -> Result<(Vec<Value>, Option<Value>)> {
        // A template that never tests for none would print it as a word.
        let no_content = if names.none { Value::Null } else { Value::String(String::new()) };
        let mut messages = Vec::with_capacity(self.messages.len());
        for (index, message) in self.messages.iter().enumerate() {
            messages.push(message.to_template(index, names, &no_content)?);
        }
        let mut tools = Vec::with_capacity(self.tools.len());
        for (index, tool) in self.tools.iter().enumerate() {
            tools.push(nested_tool(tool).ok_or_else(|| {
                Error::invalid(format!("tools[{index}]"), "not a function with a name")
            })?);
        }
        Ok((messages, (!tools.is_empty()).then_some(Value::Array(tools))))
    }
}

/// A tool definition with its function nested.
fn nested_tool(tool: &Value) -> Option<Value> {
    let fields = tool.as_object()?;
    if let Some(function) = fields.get("function") {
        function.get("name")?.as_str()?;
        return Some(tool.clone());
    }
    fields.get("name")?.as_str()?;
    let function: Map<String, Value> = fields
        .iter()
        .filter(|(key, _)| *key != "type")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Some(json!({"type": "function", "function": function}))
}
