//! `/v1/completions`: texts continued as they are.

use super::chat::StreamOptions;
use super::chat_reply::{fingerprint, finish_reason, usage_json};
use super::fields::{self, OneOrMany};
use crate::serve::error::{ApiError, ErrorFormat};
use crate::serve::generation::{Generation, Head};
use crate::serve::http::sse::{Encoder, Frame};
use crate::serve::reply::new_id;
use crate::serve::request::{
    GenerateEvent, GenerateRequest, Input, PlainPrompt, Sampling, TokenEntry, TokenLogprob, Usage,
};
use forge_core::TokenId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Most of `logprobs`.
const MAX_LOGPROBS: usize = 20;

/// A request. Fields that are not here are refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompletionRequest {
    model: Option<String>,
    prompt: Prompts,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    pub(crate) echo: Option<bool>,
    max_tokens: Option<usize>,
    n: Option<usize>,
    best_of: Option<usize>,
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
    logprobs: Option<usize>,
    response_format: Option<Value>,
    suffix: Option<Value>,
    user: Option<Value>,
}

/// `prompt` in its four forms.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Prompts {
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Tokens.
    Tokens(Vec<u32>),
    /// Lists of tokens.
    TokenLists(Vec<Vec<u32>>),
}

impl Prompts {
    fn list(self) -> Vec<PlainPrompt> {
        let tokens = |ids: Vec<u32>| PlainPrompt::Tokens(ids.into_iter().map(TokenId).collect());
        match self {
            Self::Text(text) => vec![PlainPrompt::Text(text)],
            Self::Texts(texts) => texts.into_iter().map(PlainPrompt::Text).collect(),
            Self::Tokens(ids) => vec![tokens(ids)],
            Self::TokenLists(lists) => lists.into_iter().map(tokens).collect(),
        }
    }
}

impl CompletionRequest {
    /// The texts that `echo` puts before each reply.
    pub(crate) fn echoes(&self) -> Result<Vec<String>, ApiError> {
        if self.echo != Some(true) {
            return Ok(Vec::new());
        }
        if self.logprobs.is_some() {
            let reason = "there are no log-probabilities of a prompt; leave out echo or logprobs";
            return Err(ApiError::unsupported("echo", reason));
        }
        let texts = match &self.prompt {
            Prompts::Text(text) => vec![text.clone()],
            Prompts::Texts(texts) => texts.clone(),
            Prompts::Tokens(_) | Prompts::TokenLists(_) => {
                return Err(ApiError::unsupported("echo", "works with prompts of text only"));
            }
        };
        let n = self.n.unwrap_or(1);
        Ok(texts.into_iter().flat_map(|text| vec![text; n]).collect())
    }

    /// The internal request.
    ///
    /// # Errors
    /// Naming the field that cannot be honoured.
    pub(crate) fn into_request(self) -> Result<GenerateRequest, ApiError> {
        fields::refuse([(
            "suffix",
            self.suffix.as_ref(),
            &[json!("")],
            "the model does not fill in the middle",
        )])?;
        let n = fields::positive("n", self.n)?.unwrap_or(1);
        if self.best_of.is_some_and(|best_of| best_of != n) {
            let reason = "must equal n: every reply is returned";
            return Err(ApiError::unsupported("best_of", reason));
        }
        if self.stream_options.is_some() && self.stream != Some(true) {
            return Err(ApiError::invalid("stream_options", "needs stream: true"));
        }
        self.stream_options.unwrap_or_default().check()?;
        if let Some(top) = self.logprobs.filter(|top| *top > MAX_LOGPROBS) {
            let reason = format!("{top} is more than {MAX_LOGPROBS}");
            return Err(ApiError::invalid("logprobs", reason));
        }
        let prompts = self.prompt.list();
        if prompts.is_empty() {
            return Err(ApiError::invalid("prompt", "is empty"));
        }
        Ok(GenerateRequest {
            model: self.model,
            input: Input::Plain(prompts),
            parallel_tool_calls: true,
            format: fields::response_format(self.response_format.as_ref())?,
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
            max_tokens: fields::positive("max_tokens", self.max_tokens)?.or(Some(16)),
            n,
            logprobs: self.logprobs,
            labels: fields::labels([("user", self.user)]),
            ..GenerateRequest::default()
        })
    }
}

/// The whole reply; `echoes` go before the replies.
///
/// # Errors
/// The error that ended the request.
pub(crate) async fn whole(generation: Generation, echoes: &[String]) -> Result<Value, ApiError> {
    let (model, created) = (generation.model.clone(), generation.created);
    let (replies, usage) = generation.collect().await?;
    let choices = replies.iter().enumerate().map(|(index, reply)| {
        let echo = echoes.get(index).map_or("", String::as_str);
        json!({
            "index": index,
            "text": format!("{echo}{}", reply.text),
            "logprobs": logprobs(&reply.logprobs, 0),
            "finish_reason": reply.finish.as_ref().map(finish_reason),
        })
    });
    Ok(json!({
        "id": new_id("cmpl-"),
        "object": "text_completion",
        "created": created,
        "model": model,
        "choices": choices.collect::<Vec<_>>(),
        "usage": usage_json(&usage),
        "system_fingerprint": fingerprint(),
    }))
}

/// `logprobs` of this API; `offset` = bytes of text before.
fn logprobs(tokens: &[TokenLogprob], offset: usize) -> Value {
    if tokens.is_empty() {
        return Value::Null;
    }
    let text = |entry: &TokenEntry| String::from_utf8_lossy(&entry.bytes).into_owned();
    let mut at = offset;
    let mut offsets = Vec::with_capacity(tokens.len());
    for token in tokens {
        offsets.push(at);
        at += token.token.bytes.len();
    }
    let top = tokens.iter().map(|token| {
        token.top.iter().map(|e| (text(e), json!(e.logprob.max(-9999.0)))).collect::<Map<_, _>>()
    });
    json!({
        "tokens": tokens.iter().map(|token| text(&token.token)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|t| t.token.logprob.max(-9999.0)).collect::<Vec<_>>(),
        "top_logprobs": top.collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

/// The reply in chunks.
pub(crate) struct CompletionEncoder {
    id: String,
    model: String,
    created: u64,
    include_usage: bool,
    echoes: Vec<String>,
    offsets: Vec<usize>,
}

impl CompletionEncoder {
    /// An encoder; with `include_usage` the figures come in a chunk of their own.
    pub(crate) fn new(include_usage: bool, echoes: Vec<String>) -> Self {
        let (id, model) = (new_id("cmpl-"), String::new());
        Self { id, model, created: 0, include_usage, echoes, offsets: Vec::new() }
    }

    fn chunk(&self, choices: Value, usage: Option<&Usage>) -> Frame {
        let mut chunk = json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": fingerprint(),
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = usage.map_or(Value::Null, usage_json);
        }
        Frame::data(&chunk)
    }

    fn text(&self, index: usize, text: &str, logprobs: &Value, reason: Option<&str>) -> Frame {
        let choice = json!({
            "index": index, "text": text, "logprobs": logprobs, "finish_reason": reason,
        });
        self.chunk(json!([choice]), None)
    }
}

impl Encoder for CompletionEncoder {
    fn head(&mut self, head: &Head, out: &mut Vec<Frame>) {
        self.model.clone_from(&head.model);
        self.created = head.created;
        self.offsets = vec![0; head.choices];
        for (index, echo) in self.echoes.iter().enumerate() {
            out.push(self.text(index, echo, &Value::Null, None));
        }
    }

    fn event(&mut self, event: GenerateEvent, out: &mut Vec<Frame>) {
        match event {
            GenerateEvent::Text { choice, text, logprobs: tokens } => {
                let offset = self.offsets.get(choice).copied().unwrap_or_default();
                let told = logprobs(&tokens, offset);
                out.push(self.text(choice, &text, &told, None));
                if let Some(offset) = self.offsets.get_mut(choice) {
                    *offset += tokens.iter().map(|t| t.token.bytes.len()).sum::<usize>();
                }
            }
            // Without a template there is no reasoning; what looks like it is text.
            GenerateEvent::Reasoning { choice, text } => {
                out.push(self.text(choice, &text, &Value::Null, None));
            }
            GenerateEvent::Finished { choice, reason } => {
                out.push(self.text(choice, "", &Value::Null, Some(finish_reason(&reason))));
            }
            GenerateEvent::Usage(usage) => {
                if self.include_usage {
                    out.push(self.chunk(json!([]), Some(&usage)));
                }
                out.push(Frame::Data(None, "[DONE]".into()));
            }
            GenerateEvent::Error(error) => {
                out.push(Frame::data(&error.body(ErrorFormat::OpenAi)));
                out.push(Frame::Data(None, "[DONE]".into()));
            }
            GenerateEvent::Prefill { .. }
            | GenerateEvent::ToolCallStart { .. }
            | GenerateEvent::ToolCallArguments { .. }
            | GenerateEvent::ToolCallEnd { .. } => {}
        }
    }
}
