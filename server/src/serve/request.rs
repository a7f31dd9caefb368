//! What every wire format maps to: one request, one stream of events.

use super::error::ApiError;
use forge_core::TokenId;
use forge_core::chat::Conversation;
use forge_core::engine::SamplingParams;
use forge_core::weights::GenerationDefaults;
use serde_json::{Map, Value};
use std::time::Duration;

/// A request in no API's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct GenerateRequest {
    /// Model asked for; `None` = the one that is loaded.
    pub(crate) model: Option<String>,
    /// What to answer or continue.
    pub(crate) input: Input,
    /// Which of the tools may or must be called.
    pub(crate) tool_choice: ToolChoice,
    /// Whether one reply may call more than one tool.
    pub(crate) parallel_tool_calls: bool,
    /// Form of the answer.
    pub(crate) format: ResponseFormat,
    /// How to choose tokens, over the model's own defaults.
    pub(crate) sampling: Sampling,
    /// Texts that end the answer.
    pub(crate) stop: Vec<String>,
    /// Most tokens to generate, reasoning included; `None` = until the context is full.
    pub(crate) max_tokens: Option<usize>,
    /// Replies to each prompt; 0 counts as 1.
    pub(crate) n: usize,
    /// Log-probabilities of the chosen token and of this many of the most likely.
    pub(crate) logprobs: Option<usize>,
    /// Reasoning before the answer.
    pub(crate) thinking: Thinking,
    /// Further variables of the chat template.
    pub(crate) template_variables: Map<String, Value>,
    /// The client's own labels (`user`, `metadata`), for the log.
    pub(crate) labels: Map<String, Value>,
}

/// What a reply is a reply to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    /// A conversation with its tools, through the chat template. A last message of the assistant
    /// is continued.
    Chat(Conversation),
    /// Texts to continue as they are, without a template.
    Plain(Vec<PlainPrompt>),
}

impl Default for Input {
    fn default() -> Self {
        Self::Chat(Conversation::default())
    }
}

/// A prompt that no template touches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlainPrompt {
    /// Text; control tokens that it spells out are control tokens, as in a rendered template.
    Text(String),
    /// Tokens.
    Tokens(Vec<TokenId>),
}

/// Which tools may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// None: the tools are not even shown to the model.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// Form of the answer, which a grammar enforces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum ResponseFormat {
    /// Free text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that obeys this schema.
    JsonSchema(Value),
}

/// Reasoning before the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thinking {
    /// On or off; `None` = what the template does by itself.
    pub(crate) enabled: Option<bool>,
    /// Most tokens of reasoning; 0 is the same as off.
    pub(crate) budget: Option<usize>,
}

impl Thinking {
    /// The template's `enable_thinking`.
    pub(crate) fn template_switch(self) -> Option<bool> {
        if self.budget == Some(0) { Some(false) } else { self.enabled }
    }
}

/// Sampling parameters that the client named.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sampling {
    /// See [`SamplingParams::temperature`].
    pub(crate) temperature: Option<f32>,
    /// See [`SamplingParams::top_k`].
    pub(crate) top_k: Option<u32>,
    /// See [`SamplingParams::top_p`].
    pub(crate) top_p: Option<f32>,
    /// See [`SamplingParams::min_p`].
    pub(crate) min_p: Option<f32>,
    /// See [`SamplingParams::repetition_penalty`].
    pub(crate) repetition_penalty: Option<f32>,
    /// See [`SamplingParams::presence_penalty`].
    pub(crate) presence_penalty: Option<f32>,
    /// See [`SamplingParams::frequency_penalty`].
    pub(crate) frequency_penalty: Option<f32>,
    /// See [`SamplingParams::logit_bias`].
    pub(crate) logit_bias: Vec<(TokenId, f32)>,
    /// See [`SamplingParams::seed`]. The replies of one request get seeds that follow each other.
    pub(crate) seed: Option<u64>,
}

impl Sampling {
    /// The parameters over a model's defaults, for reply number `choice`.
    pub(crate) fn params(&self, defaults: &GenerationDefaults, choice: usize) -> SamplingParams {
        let base = SamplingParams::from_defaults(defaults);
        SamplingParams {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.map(|seed| seed.wrapping_add(choice as u64)),
        }
    }
}

/// What happens to a request, in order. `choice` counts the replies: prompt by prompt, `n` each.
#[derive(Clone, Debug)]
pub(crate) enum GenerateEvent {
    /// Tokens of the prompts that are done. The first one of a reply tells what the cache held.
    Prefill {
        /// Reply.
        choice: usize,
        /// Tokens done.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
        /// Tokens that the cache held.
        cached: usize,
    },
    /// Reasoning, without its tags.
    Reasoning {
        /// Reply.
        choice: usize,
        /// Text.
        text: String,
    },
    /// Answer.
    Text {
        /// Reply.
        choice: usize,
        /// Text; empty if only log-probabilities are to be told.
        text: String,
        /// Of the tokens since the last such event, if asked for. A token whose text is held back
        /// may come before its text.
        logprobs: Vec<TokenLogprob>,
    },
    /// A tool call begins. The calls of a reply come one after the other.
    ToolCallStart {
        /// Reply.
        choice: usize,
        /// Number of the call in the reply.
        index: usize,
        /// Its unique id.
        id: String,
        /// Function.
        name: String,
    },
    /// More of the call's arguments. All of them joined are JSON.
    ToolCallArguments {
        /// Reply.
        choice: usize,
        /// Number of the call in the reply.
        index: usize,
        /// JSON text.
        delta: String,
    },
    /// The call is complete.
    ToolCallEnd {
        /// Reply.
        choice: usize,
    },
    /// The reply ended.
    Finished {
        /// Reply.
        choice: usize,
        /// Why.
        reason: Finish,
    },
    /// Figures of the whole request; the last event.
    Usage(Usage),
    /// The request failed; the last event.
    Error(ApiError),
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model ended it.
    Stop,
    /// This stop string ended it.
    StopString(String),
    /// The model ended it with tool calls.
    ToolCalls,
    /// The most tokens asked for, or a full context.
    Length,
}

/// Log-probability of a token of the answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenLogprob {
    /// Token.
    pub(crate) token: TokenEntry,
    /// The most likely tokens, best first.
    pub(crate) top: Vec<TokenEntry>,
}

/// A token, as text, with its log-probability.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenEntry {
    /// Token.
    pub(crate) id: TokenId,
    /// Its bytes, perhaps a part of a character.
    pub(crate) bytes: Vec<u8>,
    /// Log-probability.
    pub(crate) logprob: f32,
}

/// Figures of a request, summed over its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Tokens of the prompts, each counted once.
    pub(crate) prompt_tokens: usize,
    /// Those that the cache held.
    pub(crate) cached_tokens: usize,
    /// Tokens generated.
    pub(crate) completion_tokens: usize,
    /// Those of them that are reasoning, tags included.
    pub(crate) reasoning_tokens: usize,
    /// From arrival to the first token.
    pub(crate) first_token: Duration,
    /// From the first token to the last.
    pub(crate) decode: Duration,
}
