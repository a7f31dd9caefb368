//! `/v1/messages`: the request and what becomes of its fields.

use super::content::{self, Turn};
use crate::serve::error::ApiError;
use crate::serve::openai::fields::{self, OneOrMany};
use crate::serve::request::{
    GenerateRequest, Input, ResponseFormat, Sampling, Thinking, ToolChoice,
};
use crate::serve::turns::Turns;
use forge_core::chat::{Conversation, Role};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A request. Fields that are not here are refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessagesRequest {
    model: Option<String>,
    messages: Vec<Turn>,
    system: Option<Value>,
    pub(super) max_tokens: Option<usize>,
    pub(super) stream: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    stop_sequences: Option<Vec<String>>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Choice>,
    thinking: Option<ThinkingConfig>,
    output_config: Option<OutputConfig>,
    // The older place of `output_config.format`.
    output_format: Option<Value>,
    metadata: Option<Metadata>,
    // forge's own: what Chat Completions has.
    min_p: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    chat_template_kwargs: Option<Map<String, Value>>,
    #[allow(dead_code, reason = "every prefix is kept, marked or not")]
    cache_control: Option<Value>,
    // Accepted only with the value that changes nothing.
    context_management: Option<ContextManagement>,
    service_tier: Option<Value>,
    speed: Option<Value>,
    inference_geo: Option<Value>,
    container: Option<Value>,
    mcp_servers: Option<Value>,
    diagnostics: Option<Value>,
    user_profile_id: Option<Value>,
    workspace_id: Option<Value>,
}

/// `tool_choice`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    r#type: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

/// `thinking`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThinkingConfig {
    r#type: String,
    budget_tokens: Option<usize>,
    display: Option<String>,
}

/// `output_config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<Value>,
}

/// `metadata`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    user_id: Option<String>,
}

/// `context_management`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextManagement {
    #[serde(default)]
    edits: Vec<Value>,
}

impl MessagesRequest {
    /// Whether the client wants to see the reasoning.
    ///
    /// # Errors
    /// For an unknown word.
    pub(super) fn shows_thinking(&self) -> Result<bool, ApiError> {
        match self.thinking.as_ref().and_then(|thinking| thinking.display.as_deref()) {
            // There is no summary but the reasoning itself.
            None | Some("summarized") => Ok(true),
            Some("omitted") => Ok(false),
            Some(other) => {
                let reason = format!("{other:?} is not summarized or omitted");
                Err(ApiError::invalid("thinking.display", reason))
            }
        }
    }

    /// The internal request.
    ///
    /// # Errors
    /// Naming the field that cannot be honoured.
    pub(super) fn into_request(self) -> Result<GenerateRequest, ApiError> {
        self.refuse_unsupported()?;
        let thinking = self.thinking()?;
        let format = self.format()?;
        let (tool_choice, parallel_tool_calls) = self.tool_choice()?;
        let mut turns = Turns::default();
        if let Some(system) = content::system(self.system.as_ref())? {
            turns.message(Role::System, system);
        }
        if self.messages.is_empty() {
            return Err(ApiError::invalid("messages", "is empty"));
        }
        content::add(&mut turns, &self.messages)?;
        let tools = self.tools.unwrap_or_default();
        let tools = tools.iter().enumerate().map(|(index, tool)| definition(tool, index));
        let conversation =
            Conversation { messages: turns.finish(), tools: tools.collect::<Result<_, _>>()? };
        let stop = fields::stops(self.stop_sequences.map(OneOrMany::Many))
            .map_err(|error| error.renamed("stop", "stop_sequences"))?;
        let user = self.metadata.and_then(|metadata| metadata.user_id);
        Ok(GenerateRequest {
            model: self.model,
            input: Input::Chat(conversation),
            tool_choice,
            parallel_tool_calls,
            format,
            sampling: Sampling {
                temperature: self.temperature,
                top_k: fields::top_k(self.top_k)?,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                presence_penalty: self.presence_penalty,
                frequency_penalty: self.frequency_penalty,
                logit_bias: Vec::new(),
                seed: self.seed.map(i64::cast_unsigned),
            },
            stop,
            max_tokens: fields::positive("max_tokens", self.max_tokens)?,
            n: 1,
            logprobs: None,
            thinking,
            template_variables: self.chat_template_kwargs.unwrap_or_default(),
            labels: fields::labels([("user", user.map(Value::from))]),
        })
    }

    /// Off unless it is asked for, as the API has it. An effort is a budget, of the reasoning that
    /// there is.
    fn thinking(&self) -> Result<Thinking, ApiError> {
        let effort = self.output_config.as_ref().and_then(|config| config.effort.as_deref());
        let of_effort = match effort {
            Some("none") => return Err(ApiError::invalid("output_config.effort", "is no effort")),
            Some(effort) => fields::effort("output_config.effort", effort)?.budget,
            None => None,
        };
        let Some(thinking) = &self.thinking else {
            return Ok(Thinking { enabled: Some(false), budget: None });
        };
        self.shows_thinking()?;
        let budget = fields::positive("thinking.budget_tokens", thinking.budget_tokens)?;
        let smaller = budget.into_iter().chain(of_effort).min();
        match (thinking.r#type.as_str(), budget) {
            ("enabled", None) => Err(ApiError::invalid("thinking.budget_tokens", "is missing")),
            ("enabled", Some(_)) => Ok(Thinking { enabled: Some(true), budget: smaller }),
            ("adaptive", None) => Ok(Thinking { enabled: None, budget: smaller }),
            ("disabled", None) => Ok(Thinking { enabled: Some(false), budget: None }),
            ("adaptive" | "disabled", Some(_)) => {
                Err(ApiError::invalid("thinking.budget_tokens", "needs type enabled"))
            }
            (other, _) => {
                let reason = format!("{other:?} is not enabled, adaptive or disabled");
                Err(ApiError::invalid("thinking.type", reason))
            }
        }
    }

    fn format(&self) -> Result<ResponseFormat, ApiError> {
        let newer = self.output_config.as_ref().and_then(|config| config.format.as_ref());
        let (at, format) = match newer {
            Some(format) => ("output_config.format", format),
            None => match &self.output_format {
                Some(format) => ("output_format", format),
                None => return Ok(ResponseFormat::Text),
            },
        };
        if format.is_null() {
            return Ok(ResponseFormat::Text);
        }
        let fields = format.as_object().ok_or_else(|| ApiError::invalid(at, "is not an object"))?;
        if let Some(odd) = fields.keys().find(|key| !["type", "schema"].contains(&key.as_str())) {
            return Err(ApiError::invalid(format!("{at}.{odd}"), "there is no such field"));
        }
        match (fields.get("type").and_then(Value::as_str), fields.get("schema")) {
            (Some("json_schema"), Some(schema @ Value::Object(_))) => {
                Ok(ResponseFormat::JsonSchema(schema.clone()))
            }
            (Some("json_schema"), _) => {
                Err(ApiError::invalid(format!("{at}.schema"), "is no schema"))
            }
            _ => Err(ApiError::invalid(format!("{at}.type"), "must be json_schema")),
        }
    }

    /// The choice, and whether a reply may call more than one tool.
    fn tool_choice(&self) -> Result<(ToolChoice, bool), ApiError> {
        let Some(choice) = &self.tool_choice else { return Ok((ToolChoice::Auto, true)) };
        if choice.name.is_some() && choice.r#type != "tool" {
            return Err(ApiError::invalid("tool_choice.name", "needs type tool"));
        }
        let chosen = match (choice.r#type.as_str(), &choice.name) {
            ("auto", _) => ToolChoice::Auto,
            ("any", _) => ToolChoice::Required,
            ("none", _) => ToolChoice::None,
            ("tool", Some(name)) => ToolChoice::Named(name.clone()),
            ("tool", None) => return Err(ApiError::invalid("tool_choice.name", "is missing")),
            (other, _) => {
                let reason = format!("{other:?} is not auto, any, tool or none");
                return Err(ApiError::invalid("tool_choice.type", reason));
            }
        };
        Ok((chosen, choice.disable_parallel_tool_use != Some(true)))
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let tiers = &[json!("auto"), json!("standard_only")];
        fields::refuse([
            ("service_tier", self.service_tier.as_ref(), tiers, "there is one tier"),
            ("speed", self.speed.as_ref(), &[json!("standard")], "there is one speed"),
            ("inference_geo", self.inference_geo.as_ref(), &[], "forge runs where it runs"),
            ("container", self.container.as_ref(), &[], "forge runs no containers"),
            ("mcp_servers", self.mcp_servers.as_ref(), &[json!([])], "forge calls no servers"),
            ("diagnostics", self.diagnostics.as_ref(), &[], "forge has none"),
            ("user_profile_id", self.user_profile_id.as_ref(), &[], "forge has no profiles"),
            ("workspace_id", self.workspace_id.as_ref(), &[], "forge has no workspaces"),
        ])?;
        // Old reasoning is left out by the chat template, if by anyone.
        let edits = self.context_management.iter().flat_map(|management| &management.edits);
        for (index, edit) in edits.enumerate() {
            let kind = edit.get("type").and_then(Value::as_str).unwrap_or_default();
            if !kind.starts_with("clear_thinking_") {
                let at = format!("context_management.edits[{index}].type");
                return Err(ApiError::unsupported(&at, "forge does not shorten conversations"));
            }
        }
        Ok(())
    }
}

/// A tool as templates have it: only what the model needs to know, so that all APIs show it the
/// same.
fn definition(tool: &Value, index: usize) -> Result<Value, ApiError> {
    let at = format!("tools[{index}]");
    let fields = tool.as_object().ok_or_else(|| ApiError::invalid(&at, "is not an object"))?;
    if let Some(kind) = fields.get("type").filter(|kind| !kind.is_null() && *kind != "custom") {
        let reason = format!("{kind}; forge runs no tools, it takes those with an input_schema");
        return Err(ApiError::unsupported(&format!("{at}.type"), &reason));
    }
    for (key, value) in fields {
        let harmless = match key.as_str() {
            // Calls are always held to their schema and streamed, prefixes always kept, and every
            // tool is shown at once.
            "name"
            | "description"
            | "input_schema"
            | "type"
            | "cache_control"
            | "strict"
            | "eager_input_streaming"
            | "defer_loading" => true,
            "allowed_callers" => *value == json!(["direct"]) || value.is_null(),
            "input_examples" => *value == json!([]) || value.is_null(),
            _ => false,
        };
        if !harmless {
            let at = format!("{at}.{key}");
            return Err(ApiError::unsupported(&at, "forge has no such thing"));
        }
    }
    let name = fields.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| ApiError::invalid(format!("{at}.name"), "is missing"))?;
    let mut function = Map::from_iter([("name".to_owned(), Value::from(name))]);
    if let Some(description) = fields.get("description").filter(|text| !text.is_null()) {
        function.insert("description".into(), description.clone());
    }
    match fields.get("input_schema") {
        Some(schema @ Value::Object(_)) => function.insert("parameters".into(), schema.clone()),
        _ => return Err(ApiError::invalid(format!("{at}.input_schema"), "is no JSON schema")),
    };
    Ok(json!({"type": "function", "function": function}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(extra: Value) -> Result<GenerateRequest, ApiError> {
        let mut body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "q"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value::<MessagesRequest>(body).unwrap().into_request()
    }

    #[test]
    fn fields_reach_the_request() {
        let made = request(json!({
            "system": "s", "top_k": 3, "stop_sequences": ["x"], "metadata": {"user_id": "me"},
            "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "thinking": {"type": "enabled", "budget_tokens": 3000}, "output_config": {"effort": "low"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        }))
        .unwrap();
        let Input::Chat(conversation) = &made.input else { panic!("not a chat") };
        assert_eq!(conversation.messages.len(), 2);
        let function = json!({"name": "f", "description": "d", "parameters": {"type": "object"}});
        assert_eq!(conversation.tools, [json!({"type": "function", "function": function})]);
        assert_eq!((made.max_tokens, made.sampling.top_k), (Some(9), Some(3)));
        assert_eq!((made.tool_choice, made.parallel_tool_calls), (ToolChoice::Required, false));
        assert_eq!(made.thinking, Thinking { enabled: Some(true), budget: Some(2048) });
        assert_eq!(made.stop, ["x"]);
        assert_eq!(made.labels["user"], "me");
    }

    #[test]
    fn thinking_is_off_unless_it_is_asked_for() {
        let thinking = |extra: Value| request(extra).unwrap().thinking;
        let off = Thinking { enabled: Some(false), budget: None };
        assert_eq!(thinking(json!({})), off);
        assert_eq!(thinking(json!({"output_config": {"effort": "low"}})), off);
        assert_eq!(thinking(json!({"thinking": {"type": "disabled"}})), off);
        assert_eq!(
            thinking(
                json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}})
            ),
            Thinking { enabled: None, budget: Some(8192) }
        );
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        for (extra, param) in [
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"messages": []}), "messages"),
            (json!({"stop_sequences": [""]}), "stop_sequences"),
            (json!({"top_k": -2}), "top_k"),
            (json!({"thinking": {"type": "enabled"}}), "thinking.budget_tokens"),
            (json!({"thinking": {"type": "between_tools"}}), "thinking.type"),
            (json!({"thinking": {"type": "adaptive", "display": "x"}}), "thinking.display"),
            (json!({"tool_choice": {"type": "tool"}}), "tool_choice.name"),
            (json!({"tool_choice": {"type": "all"}}), "tool_choice.type"),
            (json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}), "tools[0].type"),
            (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
            (json!({"tools": [{"input_schema": {}}]}), "tools[0].name"),
            (json!({"tools": [{"name": "f", "input_schema": {}, "odd": 1}]}), "tools[0].odd"),
            (json!({"output_config": {"effort": "huge"}}), "output_config.effort"),
            (json!({"output_config": {"format": {"type": "xml"}}}), "output_config.format.type"),
            (json!({"speed": "fast"}), "speed"),
            (json!({"mcp_servers": [{}]}), "mcp_servers"),
            (
                json!({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
                "context_management.edits[0].type",
            ),
        ] {
            let error = request(extra.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{extra}");
        }
    }
}
