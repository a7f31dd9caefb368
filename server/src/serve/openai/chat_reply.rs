//! `/v1/chat/completions`: the reply, whole or in chunks.

use crate::serve::error::{ApiError, ErrorFormat};
use crate::serve::generation::{Generation, Head, Reply};
use crate::serve::http::sse::{Encoder, Frame};
use crate::serve::reply::new_id;
use crate::serve::request::{Finish, GenerateEvent, TokenEntry, TokenLogprob, Usage};
use serde_json::{Map, Value, json};

/// The whole reply.
///
/// # Errors
/// The error that ended the request.
pub(crate) async fn whole(generation: Generation) -> Result<Value, ApiError> {
    let (model, created) = (generation.model.clone(), generation.created);
    let (replies, usage) = generation.collect().await?;
    let choices: Vec<Value> =
        replies.iter().enumerate().map(|(index, reply)| choice(index, reply)).collect();
    Ok(json!({
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": choices,
        "usage": usage_json(&usage),
        "system_fingerprint": fingerprint(),
    }))
}

/// What names this build.
pub(crate) fn fingerprint() -> &'static str {
    concat!("forge-", env!("CARGO_PKG_VERSION"))
}

fn choice(index: usize, reply: &Reply) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let content = if reply.text.is_empty() && !reply.tool_calls.is_empty() {
        Value::Null
    } else {
        reply.text.as_str().into()
    };
    message.insert("content".into(), content);
    message.insert("refusal".into(), Value::Null);
    if !reply.reasoning.is_empty() {
        message.insert("reasoning_content".into(), reply.reasoning.as_str().into());
    }
    if !reply.tool_calls.is_empty() {
        let calls = reply.tool_calls.iter().map(|call| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        });
        message.insert("tool_calls".into(), calls.collect());
    }
    json!({
        "index": index,
        "message": message,
        "logprobs": logprobs(&reply.logprobs),
        "finish_reason": reply.finish.as_ref().map(finish_reason),
    })
}

/// The word for an end.
pub(crate) fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopString(_) => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
    }
}

/// `usage`.
pub(crate) fn usage_json(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}

fn logprobs(tokens: &[TokenLogprob]) -> Value {
    if tokens.is_empty() {
        return Value::Null;
    }
    json!({"content": logprob_entries(tokens), "refusal": null})
}

/// Tokens with their log-probabilities, as the OpenAI formats have them.
pub(crate) fn logprob_entries(tokens: &[TokenLogprob]) -> Vec<Value> {
    let entry = |entry: &TokenEntry| {
        let text = String::from_utf8_lossy(&entry.bytes);
        // JSON has no minus infinity.
        let logprob = entry.logprob.max(-9999.0);
        json!({"token": text, "logprob": logprob, "bytes": entry.bytes})
    };
    let content = tokens.iter().map(|token| {
        let mut value = entry(&token.token);
        value["top_logprobs"] = token.top.iter().map(entry).collect();
        value
    });
    content.collect()
}

/// The reply in chunks.
pub(crate) struct ChatEncoder {
    id: String,
    model: String,
    created: u64,
    include_usage: bool,
}

impl ChatEncoder {
    /// An encoder; with `include_usage` the figures come in a chunk of their own.
    pub(crate) fn new(include_usage: bool) -> Self {
        Self { id: new_id("chatcmpl-"), model: String::new(), created: 0, include_usage }
    }

    fn chunk(&self, choices: Value, usage: Option<&Usage>) -> Frame {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
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

    fn delta(&self, choice: usize, delta: &Value, tokens: &[TokenLogprob]) -> Frame {
        let choice = json!({
            "index": choice, "delta": delta, "logprobs": logprobs(tokens), "finish_reason": null,
        });
        self.chunk(json!([choice]), None)
    }
}

impl Encoder for ChatEncoder {
    fn head(&mut self, head: &Head, out: &mut Vec<Frame>) {
        self.model.clone_from(&head.model);
        self.created = head.created;
        for choice in 0..head.choices {
            out.push(self.delta(choice, &json!({"role": "assistant", "content": ""}), &[]));
        }
    }

    fn event(&mut self, event: GenerateEvent, out: &mut Vec<Frame>) {
        match event {
            // For people who wait for a long prompt; programs do not see comments.
            GenerateEvent::Prefill { done, total, .. } if done < total => {
                out.push(Frame::Comment(format!("prefill {done}/{total}")));
            }
            GenerateEvent::Prefill { .. } | GenerateEvent::ToolCallEnd { .. } => {}
            GenerateEvent::Reasoning { choice, text } => {
                out.push(self.delta(choice, &json!({"reasoning_content": text}), &[]));
            }
            GenerateEvent::Text { choice, text, logprobs } => {
                out.push(self.delta(choice, &json!({"content": text}), &logprobs));
            }
            GenerateEvent::ToolCallStart { choice, index, id, name } => {
                let function = json!({"name": name, "arguments": ""});
                let call =
                    json!({"index": index, "id": id, "type": "function", "function": function});
                out.push(self.delta(choice, &json!({"tool_calls": [call]}), &[]));
            }
            GenerateEvent::ToolCallArguments { choice, index, delta } => {
                let call = json!({"index": index, "function": {"arguments": delta}});
                out.push(self.delta(choice, &json!({"tool_calls": [call]}), &[]));
            }
            GenerateEvent::Finished { choice, reason } => {
                let choice = json!({
                    "index": choice, "delta": {}, "logprobs": null,
                    "finish_reason": finish_reason(&reason),
                });
                out.push(self.chunk(json!([choice]), None));
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
        }
    }
}
