//! `/v1/responses`: the request and what becomes of its fields.

use super::input;
use super::store::ResponseStore;
use super::tools::{self, Tools};
use super::writer::Form;
use crate::serve::error::{ApiError, ErrorKind};
use crate::serve::openai::fields::{self, OneOrMany};
use crate::serve::request::{GenerateRequest, Input, ResponseFormat, Sampling, Thinking};
use crate::serve::turns::Turns;
use forge_core::chat::{Conversation, Role};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What `include` may list. Only two of them concern what forge has; of the others there is nothing.
const INCLUDABLE: [&str; 8] = [
    ENCRYPTED,
    LOGPROBS,
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];
/// Reasoning in a form that can be sent back without being stored.
pub(super) const ENCRYPTED: &str = "reasoning.encrypted_content";
const LOGPROBS: &str = "message.output_text.logprobs";

/// A request. Fields that are not here are refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResponseRequest {
    model: Option<String>,
    input: Option<Value>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    pub(super) stream: Option<bool>,
    stream_options: Option<Value>,
    pub(super) store: Option<bool>,
    max_output_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    // Counts calls of tools that run at the server, of which there are none.
    max_tool_calls: Option<usize>,
    text: Option<Text>,
    reasoning: Option<Reasoning>,
    include: Option<Vec<String>>,
    top_logprobs: Option<usize>,
    metadata: Option<Map<String, Value>>,
    user: Option<String>,
    safety_identifier: Option<String>,
    // forge's own: what Chat Completions has.
    top_k: Option<i64>,
    min_p: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    repetition_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<OneOrMany>,
    chat_template_kwargs: Option<Map<String, Value>>,
    // A prefix is found whatever its key.
    prompt_cache_key: Option<String>,
    #[allow(dead_code, reason = "names the client's installation, which concerns nobody here")]
    client_metadata: Option<Value>,
    // Accepted only with the value that changes nothing.
    truncation: Option<Value>,
    service_tier: Option<Value>,
    background: Option<Value>,
    background_options: Option<Value>,
    conversation: Option<Value>,
    context_management: Option<Value>,
    prompt: Option<Value>,
    prompt_cache_options: Option<Value>,
    prompt_cache_retention: Option<Value>,
    moderation: Option<Value>,
    image: Option<Value>,
    access_programs: Option<Value>,
}

/// `text`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: Option<Value>,
    verbosity: Option<Value>,
}

/// `reasoning`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoning {
    effort: Option<String>,
    summary: Option<String>,
    generate_summary: Option<String>,
    context: Option<Value>,
    mode: Option<Value>,
}

/// A request that can be worked on.
pub(super) struct Accepted {
    /// The internal request.
    pub(super) request: GenerateRequest,
    /// Items of the request.
    pub(super) input: Vec<Value>,
    /// How the response is written.
    pub(super) form: Form,
    /// What was not taken up.
    pub(super) ignored: Vec<String>,
}

impl ResponseRequest {
    /// The request with what was said before.
    ///
    /// # Errors
    /// Naming the field that cannot be honoured; 404 for a response or item that is not stored.
    pub(super) fn accept(self, store: &ResponseStore) -> Result<Accepted, ApiError> {
        self.refuse_unsupported()?;
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
        let thinking = match effort {
            Some(effort) => fields::effort("reasoning.effort", effort)?,
            None => Thinking::default(),
        };
        let summary = self.summary()?;
        let include = self.include.as_deref().unwrap_or_default();
        check_include(include)?;
        if self.metadata.iter().flatten().any(|(_, value)| !value.is_string()) {
            return Err(ApiError::invalid("metadata", "has a value that is no text"));
        }
        let Tools { definitions, custom, ignored } =
            tools::tools(self.tools.as_deref().unwrap_or_default())?;
        let mut turns = Turns::default();
        if let Some(instructions) = self.instructions.as_ref().filter(|text| !text.is_empty()) {
            turns.message(Role::System, instructions.as_str());
        }
        if let Some(previous) = &self.previous_response_id {
            let chain = store.chain(previous).map_err(|missing| {
                let message = format!("previous_response_id: there is no response {missing:?}");
                ApiError {
                    param: Some("previous_response_id".into()),
                    code: Some("previous_response_not_found"),
                    ..ApiError::new(ErrorKind::NotFound, message)
                }
            })?;
            for stored in chain {
                input::add(&mut turns, &stored.input, "previous_response_id.input")?;
                input::add(&mut turns, stored.output(), "previous_response_id.output")?;
            }
        }
        let items = input::items(self.input.clone(), store)?;
        input::add(&mut turns, &items, "input")?;
        let messages = turns.finish();
        if messages.is_empty() {
            return Err(ApiError::invalid("input", "is empty"));
        }
        let with_logprobs = include.iter().any(|name| name == LOGPROBS);
        let logprobs = (with_logprobs || self.top_logprobs.is_some()).then_some(true);
        let form = Form {
            response: self.echo(),
            summary,
            encrypted: include.iter().any(|name| name == ENCRYPTED),
            custom,
        };
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: fields::top_k(self.top_k)?,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: Vec::new(),
            seed: self.seed.map(i64::cast_unsigned),
        };
        let request = GenerateRequest {
            format: text_format(self.text.as_ref().and_then(|text| text.format.as_ref()))?,
            model: self.model,
            input: Input::Chat(Conversation { messages, tools: definitions }),
            tool_choice: tools::tool_choice(self.tool_choice.as_ref())?,
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            sampling,
            stop: fields::stops(self.stop)?,
            max_tokens: fields::positive("max_output_tokens", self.max_output_tokens)?,
            n: 1,
            logprobs: fields::logprobs(logprobs, self.top_logprobs)?,
            thinking,
            template_variables: self.chat_template_kwargs.unwrap_or_default(),
            labels: fields::labels([
                ("user", self.user.map(Value::from)),
                ("safety_identifier", self.safety_identifier.map(Value::from)),
                ("metadata", self.metadata.map(Value::from)),
            ]),
        };
        Ok(Accepted { request, input: items, form, ignored })
    }

    /// Whether the reasoning is told as a summary.
    fn summary(&self) -> Result<bool, ApiError> {
        let Some(reasoning) = &self.reasoning else { return Ok(false) };
        for (field, value) in [
            ("reasoning.summary", &reasoning.summary),
            ("reasoning.generate_summary", &reasoning.generate_summary),
        ] {
            match value.as_deref() {
                None => {}
                Some("auto" | "concise" | "detailed") => return Ok(true),
                // Codex has this word for no summary.
                Some("none") => return Ok(false),
                Some(other) => {
                    let reason = format!("{other:?} is not auto, concise or detailed");
                    return Err(ApiError::invalid(field, reason));
                }
            }
        }
        Ok(false)
    }

    /// What the response object repeats of the request.
    fn echo(&self) -> Value {
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_ref());
        let summary = self.reasoning.as_ref().and_then(|reasoning| reasoning.summary.as_ref());
        let format = self.text.as_ref().and_then(|text| text.format.clone());
        json!({
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata.clone().unwrap_or_default(),
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": effort, "summary": summary},
            "safety_identifier": self.safety_identifier,
            "store": self.store.unwrap_or(true),
            "temperature": self.temperature,
            "text": {"format": format.unwrap_or_else(|| json!({"type": "text"})), "verbosity": "medium"},
            "tool_choice": self.tool_choice.clone().unwrap_or_else(|| "auto".into()),
            "tools": self.tools.clone().unwrap_or_default(),
            "top_logprobs": self.top_logprobs.unwrap_or_default(),
            "top_p": self.top_p,
            "user": self.user,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let off = &[json!(false)];
        let tiers = &[json!("auto"), json!("default")];
        let plain = &[json!({}), json!({"include_obfuscation": false})];
        let text = self.text.as_ref();
        let reasoning = self.reasoning.as_ref();
        fields::refuse([
            (
                "stream_options",
                self.stream_options.as_ref(),
                plain,
                "forge does not pad its events",
            ),
            (
                "truncation",
                self.truncation.as_ref(),
                &[json!("disabled")],
                "nothing is left out without being asked for; the client must shorten the input",
            ),
            ("service_tier", self.service_tier.as_ref(), tiers, "there is one tier"),
            ("background", self.background.as_ref(), off, "forge answers while the client waits"),
            ("background_options", self.background_options.as_ref(), &[], "see background"),
            ("conversation", self.conversation.as_ref(), &[], "use previous_response_id"),
            (
                "context_management",
                self.context_management.as_ref(),
                &[json!([])],
                "forge does not shorten conversations",
            ),
            ("prompt", self.prompt.as_ref(), &[], "forge stores no prompts"),
            (
                "prompt_cache_options",
                self.prompt_cache_options.as_ref(),
                &[json!({}), json!({"mode": "implicit"})],
                "every prefix is kept as long as there is room",
            ),
            (
                "prompt_cache_retention",
                self.prompt_cache_retention.as_ref(),
                &[json!("in_memory"), json!("in-memory")],
                "prefixes are kept in memory",
            ),
            ("moderation", self.moderation.as_ref(), &[], "forge does not moderate"),
            ("image", self.image.as_ref(), &[], "this model reads text only"),
            ("access_programs", self.access_programs.as_ref(), &[], "forge has none"),
            (
                "text.verbosity",
                text.and_then(|text| text.verbosity.as_ref()),
                &[json!("medium")],
                "say it in the instructions",
            ),
            (
                "reasoning.context",
                reasoning.and_then(|reasoning| reasoning.context.as_ref()),
                &[json!("auto")],
                "the chat template decides which reasoning the model sees again",
            ),
            (
                "reasoning.mode",
                reasoning.and_then(|reasoning| reasoning.mode.as_ref()),
                &[json!("standard")],
                "there is one mode",
            ),
        ])
    }
}

/// `text.format`.
fn text_format(format: Option<&Value>) -> Result<ResponseFormat, ApiError> {
    let renamed = |error: ApiError| {
        let error = error.renamed("response_format.json_schema.schema", "text.format.schema");
        error.renamed("response_format", "text.format")
    };
    fields::response_format(format).map_err(renamed)
}

/// Checks the names in `include`.
///
/// # Errors
/// Naming the first that is unknown.
pub(super) fn check_include(include: &[String]) -> Result<(), ApiError> {
    match include.iter().position(|name| !INCLUDABLE.contains(&name.as_str())) {
        Some(index) => {
            let reason = format!("{:?} cannot be included", include[index]);
            Err(ApiError::invalid(format!("include[{index}]"), reason))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Stored;
    use super::*;
    use crate::serve::request::ToolChoice;
    use forge_core::chat::Message;

    fn accept(body: Value, store: &ResponseStore) -> Result<Accepted, ApiError> {
        serde_json::from_value::<ResponseRequest>(body).unwrap().accept(store)
    }

    fn messages(accepted: &Accepted) -> &[Message] {
        match &accepted.request.input {
            Input::Chat(conversation) => &conversation.messages,
            Input::Plain(_) => &[],
        }
    }

    #[test]
    fn fields_reach_the_request() {
        let accepted = accept(
            json!({
                "model": "m", "input": "q", "instructions": "i", "max_output_tokens": 7, "top_k": 3,
                "tool_choice": "none", "parallel_tool_calls": false, "top_logprobs": 2, "user": "u",
                "reasoning": {"effort": "low", "summary": "auto"}, "metadata": {"a": "b"},
                "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "object"}}},
                "include": ["reasoning.encrypted_content"],
            }),
            &ResponseStore::new(0),
        )
        .unwrap();
        let texts: Vec<&str> = messages(&accepted).iter().map(|m| m.role.as_str()).collect();
        assert_eq!(texts, ["system", "user"]);
        let request = &accepted.request;
        assert_eq!((request.max_tokens, request.sampling.top_k), (Some(7), Some(3)));
        assert_eq!((request.logprobs, request.parallel_tool_calls), (Some(2), false));
        assert_eq!(request.tool_choice, ToolChoice::None);
        assert_eq!(request.format, ResponseFormat::JsonSchema(json!({"type": "object"})));
        assert_eq!(request.thinking, Thinking { enabled: Some(true), budget: Some(2048) });
        assert!(accepted.form.summary && accepted.form.encrypted);
        assert_eq!(accepted.form.response["metadata"], json!({"a": "b"}));
        assert_eq!(accepted.form.response["store"], true);
    }

    #[test]
    fn a_chain_goes_before_the_input_without_its_instructions() {
        let store = ResponseStore::new(10_000);
        let message =
            |role: &str, text: &str| json!({"type": "message", "role": role, "content": text});
        let first = Stored {
            response: json!({"instructions": "old", "output": [message("assistant", "b")]}),
            input: vec![message("user", "a")],
            previous: None,
        };
        store.insert("resp_1", first);
        let body = json!({"previous_response_id": "resp_1", "input": "c", "instructions": "new"});
        let accepted = accept(body, &store).unwrap();
        let texts: Vec<String> = messages(&accepted)
            .iter()
            .map(|message| message.content.as_ref().unwrap().to_text("").unwrap())
            .collect();
        assert_eq!(texts, ["new", "a", "b", "c"]);
        assert_eq!(accepted.input.len(), 1);
        let missing = json!({"previous_response_id": "resp_2", "input": "c"});
        let error = accept(missing, &store).err().unwrap();
        assert_eq!(
            (error.kind, error.code),
            (ErrorKind::NotFound, Some("previous_response_not_found"))
        );
    }

    #[test]
    fn what_cannot_be_had_is_named() {
        for (field, value, param) in [
            ("truncation", json!("auto"), "truncation"),
            ("background", json!(true), "background"),
            ("conversation", json!("conv_1"), "conversation"),
            ("include", json!(["secrets"]), "include[0]"),
            ("reasoning", json!({"effort": "huge"}), "reasoning.effort"),
            ("reasoning", json!({"summary": "long"}), "reasoning.summary"),
            ("text", json!({"format": {"type": "xml"}}), "text.format.type"),
            ("text", json!({"format": {"type": "json_schema"}}), "text.format.schema"),
            ("text", json!({"verbosity": "low"}), "text.verbosity"),
            ("metadata", json!({"a": 1}), "metadata"),
            ("max_output_tokens", json!(0), "max_output_tokens"),
            ("input", json!([]), "input"),
        ] {
            let mut body = json!({"input": "q"});
            body[field] = value.clone();
            let error = accept(body, &ResponseStore::new(0)).err().unwrap();
            assert_eq!(error.param.as_deref(), Some(param), "{field}: {value}");
        }
    }
}
