//! `/v1/chat/completions`: the request and what becomes of its fields.

use super::fields::{self, OneOrMany};
use crate::serve::error::ApiError;
use crate::serve::request::{GenerateRequest, Input, Sampling, Thinking};
use forge_core::chat::{Conversation, Message, Role};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A request. Fields that are not here are refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    model: Option<String>,
    messages: Vec<Message>,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    n: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<OneOrMany>,
    logit_bias: Option<Map<String, Value>>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    response_format: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    reasoning_effort: Option<String>,
    reasoning: Option<Reasoning>,
    thinking: Option<AnthropicThinking>,
    thinking_budget: Option<usize>,
    enable_thinking: Option<bool>,
    chat_template_kwargs: Option<Map<String, Value>>,
    // Labels: they are written to the log.
    user: Option<Value>,
    safety_identifier: Option<Value>,
    metadata: Option<Value>,
    // A prefix is found whatever its key, and kept as long as there is room.
    #[allow(dead_code, reason = "every prefix is looked for in the cache anyway")]
    prompt_cache_key: Option<String>,
    prompt_cache_retention: Option<Value>,
    // Accepted only with the value that changes nothing.
    store: Option<Value>,
    service_tier: Option<Value>,
    verbosity: Option<Value>,
    modalities: Option<Value>,
    audio: Option<Value>,
    prediction: Option<Value>,
    web_search_options: Option<Value>,
    functions: Option<Value>,
    function_call: Option<Value>,
    moderation: Option<Value>,
}

/// `stream_options`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamOptions {
    /// End with a chunk of the figures.
    pub(crate) include_usage: Option<bool>,
    /// Random padding; there is none.
    include_obfuscation: Option<bool>,
}

impl StreamOptions {
    /// Refuses what cannot be done.
    ///
    /// # Errors
    /// Naming the field.
    pub(crate) fn check(self) -> Result<(), ApiError> {
        match self.include_obfuscation {
            Some(true) => Err(ApiError::unsupported(
                "stream_options.include_obfuscation",
                "forge does not pad its chunks",
            )),
            _ => Ok(()),
        }
    }
}

/// `reasoning`, as some routers have it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoning {
    effort: Option<String>,
    max_tokens: Option<usize>,
    enabled: Option<bool>,
}

/// `thinking`, as the Messages API has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnthropicThinking {
    r#type: String,
    budget_tokens: Option<usize>,
}

impl ChatRequest {
    /// The internal request.
    ///
    /// # Errors
    /// Naming the field that cannot be honoured.
    pub(crate) fn into_request(mut self) -> Result<GenerateRequest, ApiError> {
        self.refuse_unsupported()?;
        check_roles(&self.messages)?;
        if self.stream_options.is_some() && self.stream != Some(true) {
            return Err(ApiError::invalid("stream_options", "needs stream: true"));
        }
        self.stream_options.unwrap_or_default().check()?;
        let max_tokens = fields::positive("max_tokens", self.max_tokens)?;
        let max_completion = fields::positive("max_completion_tokens", self.max_completion_tokens)?;
        let mut variables = self.chat_template_kwargs.take().unwrap_or_default();
        let thinking = self.thinking(&mut variables)?;
        let format = fields::response_format(self.response_format.as_ref())?;
        let labels = fields::labels([
            ("user", self.user),
            ("safety_identifier", self.safety_identifier),
            ("metadata", self.metadata),
        ]);
        Ok(GenerateRequest {
            model: self.model,
            input: Input::Chat(Conversation {
                messages: self.messages,
                tools: self.tools.unwrap_or_default(),
            }),
            tool_choice: fields::tool_choice(self.tool_choice.as_ref())?,
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            format,
            sampling: Sampling {
                temperature: self.temperature,
                top_k: fields::top_k(self.top_k)?,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                presence_penalty: self.presence_penalty,
                frequency_penalty: self.frequency_penalty,
                logit_bias: fields::logit_bias(&self.logit_bias.unwrap_or_default())?,
                seed: self.seed.map(i64::cast_unsigned),
            },
            stop: fields::stops(self.stop)?,
            max_tokens: max_completion.into_iter().chain(max_tokens).min(),
            n: fields::positive("n", self.n)?.unwrap_or(1),
            logprobs: fields::logprobs(self.logprobs, self.top_logprobs)?,
            thinking,
            template_variables: variables,
            labels,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let off = &[json!(false)];
        let tiers = &[json!("auto"), json!("default")];
        let text = &[json!(["text"])];
        fields::refuse([
            (
                "store",
                self.store.as_ref(),
                off,
                "chat completions are not stored; use /v1/responses",
            ),
            ("service_tier", self.service_tier.as_ref(), tiers, "there is one tier"),
            ("verbosity", self.verbosity.as_ref(), &[json!("medium")], "say it in a message"),
            ("modalities", self.modalities.as_ref(), text, "forge writes text only"),
            ("audio", self.audio.as_ref(), &[], "forge writes text only"),
            ("prediction", self.prediction.as_ref(), &[], "forge takes no predicted output"),
            ("web_search_options", self.web_search_options.as_ref(), &[], "forge does not search"),
            ("functions", self.functions.as_ref(), &[json!([])], "use tools"),
            ("function_call", self.function_call.as_ref(), &[], "use tool_choice"),
            ("moderation", self.moderation.as_ref(), &[], "forge does not moderate"),
            (
                "prompt_cache_retention",
                self.prompt_cache_retention.as_ref(),
                &[json!("in_memory"), json!("in-memory")],
                "prefixes are kept in memory",
            ),
        ])
    }

    /// What the many fields about reasoning say together.
    fn thinking(&self, variables: &mut Map<String, Value>) -> Result<Thinking, ApiError> {
        let mut said = Vec::new();
        if let Some(effort) = &self.reasoning_effort {
            said.push(fields::effort("reasoning_effort", effort)?);
        }
        if let Some(reasoning) = &self.reasoning {
            if let Some(effort) = &reasoning.effort {
                said.push(fields::effort("reasoning.effort", effort)?);
            }
            said.push(Thinking { enabled: reasoning.enabled, budget: reasoning.max_tokens });
        }
        if let Some(thinking) = &self.thinking {
            let enabled = match thinking.r#type.as_str() {
                "enabled" => Some(true),
                "adaptive" => None,
                "disabled" => Some(false),
                _ => return Err(ApiError::invalid("thinking.type", "is not enabled or disabled")),
            };
            said.push(Thinking { enabled, budget: thinking.budget_tokens });
        }
        said.push(Thinking { enabled: self.enable_thinking, budget: self.thinking_budget });
        if let Some(switch) = variables.remove("enable_thinking") {
            let at = "chat_template_kwargs.enable_thinking";
            let enabled = switch.as_bool().ok_or_else(|| ApiError::invalid(at, "is no boolean"))?;
            said.push(Thinking { enabled: Some(enabled), budget: None });
        }
        let switches: Vec<bool> = said.iter().filter_map(|t| t.template_switch()).collect();
        if switches.windows(2).any(|pair| pair[0] != pair[1]) {
            let reason = "the fields about reasoning contradict each other";
            return Err(ApiError::invalid("enable_thinking", reason));
        }
        let budget = said.iter().filter_map(|thinking| thinking.budget).min();
        Ok(Thinking { enabled: switches.first().copied(), budget })
    }
}

/// Refuses roles that no API knows.
fn check_roles(messages: &[Message]) -> Result<(), ApiError> {
    for (index, message) in messages.iter().enumerate() {
        if let Role::Other(role) = &message.role {
            let reason = format!("{role:?} is not system, developer, user, assistant or tool");
            return Err(ApiError::invalid(format!("messages[{index}].role"), reason));
        }
    }
    Ok(())
}
