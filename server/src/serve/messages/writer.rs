//! `/v1/messages`: the message, while it is made. Whole and streamed messages are written by the
//! same code.

use super::content::SEAL;
use crate::serve::error::{ApiError, ErrorFormat};
use crate::serve::generation::{Generation, Head};
use crate::serve::http::sse::{Encoder, Frame, exhaust};
use crate::serve::reply::new_id;
use crate::serve::request::{Finish, GenerateEvent, Usage};
use serde_json::{Value, json};

/// Stands where a signature is expected: nothing is verified.
const SIGNATURE: &str = "forge";

/// A block on its way.
#[derive(Debug)]
enum Block {
    Thinking(String),
    Text(String),
    ToolUse { id: String, name: String, arguments: String },
}

/// Writes one message.
pub(super) struct MessageWriter {
    message: Value,
    /// The reasoning is shown.
    shows_thinking: bool,
    max_tokens: Option<usize>,
    prompt_tokens: usize,
    content: Vec<Value>,
    /// Blocks that were begun, the open one included.
    blocks: usize,
    open: Option<Block>,
    finish: Option<Finish>,
    started: bool,
}

impl MessageWriter {
    /// A writer.
    pub(super) fn new(shows_thinking: bool, max_tokens: Option<usize>) -> Self {
        let message = json!({
            "id": new_id("msg_"), "type": "message", "role": "assistant", "model": "",
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": null,
        });
        Self {
            message,
            shows_thinking,
            max_tokens,
            prompt_tokens: 0,
            content: Vec::new(),
            blocks: 0,
            open: None,
            finish: None,
            started: false,
        }
    }

    /// The message as it stands.
    pub(super) fn into_message(self) -> Value {
        self.message
    }

    /// The first event: it waits for the first news of the prompt, which tells what the cache held.
    fn start(&mut self, cached: usize, out: &mut Vec<Frame>) {
        if self.started {
            return;
        }
        self.started = true;
        let usage =
            Usage { prompt_tokens: self.prompt_tokens, cached_tokens: cached, ..Usage::default() };
        self.message["usage"] = usage_json(&usage);
        let start = json!({"type": "message_start", "message": self.message});
        out.push(Frame::named("message_start", &start));
    }

    fn delta(&self, delta: &Value) -> Frame {
        let index = self.blocks.saturating_sub(1);
        let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
        Frame::named("content_block_delta", &event)
    }

    fn begin(&mut self, block: Block, out: &mut Vec<Frame>) {
        self.end(true, out);
        let empty = match &block {
            Block::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Block::Text(_) => json!({"type": "text", "text": ""}),
            Block::ToolUse { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        };
        let start =
            json!({"type": "content_block_start", "index": self.blocks, "content_block": empty});
        out.push(Frame::named("content_block_start", &start));
        self.blocks += 1;
        self.open = Some(block);
    }

    /// Ends the open block. A call that was cut off is left out of the whole message: its input is
    /// no object, and nobody should act on a part of it.
    fn end(&mut self, complete: bool, out: &mut Vec<Frame>) {
        let Some(block) = self.open.take() else { return };
        match block {
            Block::Thinking(text) => {
                let (text, signature) = if self.shows_thinking {
                    (text, SIGNATURE.to_owned())
                } else {
                    (String::new(), format!("{SEAL}{text}"))
                };
                out.push(self.delta(&json!({"type": "signature_delta", "signature": signature})));
                let block = json!({"type": "thinking", "thinking": text, "signature": signature});
                self.content.push(block);
            }
            Block::Text(text) => self.content.push(json!({"type": "text", "text": text})),
            Block::ToolUse { id, name, arguments } => {
                let input = serde_json::from_str::<Value>(&arguments).ok();
                if let Some(input) = input.filter(|input| complete && input.is_object()) {
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
                    self.content.push(block);
                }
            }
        }
        let stop = json!({"type": "content_block_stop", "index": self.blocks.saturating_sub(1)});
        out.push(Frame::named("content_block_stop", &stop));
    }

    fn thinking(&mut self, text: &str, out: &mut Vec<Frame>) {
        if !matches!(self.open, Some(Block::Thinking(_))) {
            self.begin(Block::Thinking(String::new()), out);
        }
        if let Some(Block::Thinking(all)) = &mut self.open {
            all.push_str(text);
        }
        if self.shows_thinking {
            out.push(self.delta(&json!({"type": "thinking_delta", "thinking": text})));
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<Frame>) {
        if text.is_empty() {
            return;
        }
        if !matches!(self.open, Some(Block::Text(_))) {
            self.begin(Block::Text(String::new()), out);
        }
        if let Some(Block::Text(all)) = &mut self.open {
            all.push_str(text);
        }
        out.push(self.delta(&json!({"type": "text_delta", "text": text})));
    }

    fn arguments(&mut self, json_text: &str, out: &mut Vec<Frame>) {
        if let Some(Block::ToolUse { arguments, .. }) = &mut self.open {
            arguments.push_str(json_text);
            out.push(self.delta(&json!({"type": "input_json_delta", "partial_json": json_text})));
        }
    }

    fn complete(&mut self, usage: &Usage, out: &mut Vec<Frame>) {
        let (reason, sequence) = match self.finish.take() {
            Some(Finish::StopString(text)) => ("stop_sequence", Some(text)),
            Some(Finish::ToolCalls) => ("tool_use", None),
            Some(Finish::Length)
                if self.max_tokens.is_some_and(|m| usage.completion_tokens < m) =>
            {
                ("model_context_window_exceeded", None)
            }
            Some(Finish::Length) => ("max_tokens", None),
            Some(Finish::Stop) | None => ("end_turn", None),
        };
        let usage = usage_json(usage);
        let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
        let event = json!({"type": "message_delta", "delta": delta, "usage": usage});
        out.push(Frame::named("message_delta", &event));
        out.push(Frame::named("message_stop", &json!({"type": "message_stop"})));
        self.message["stop_reason"] = reason.into();
        self.message["stop_sequence"] = sequence.into();
        self.message["usage"] = usage;
        self.message["content"] = std::mem::take(&mut self.content).into();
    }
}

impl Encoder for MessageWriter {
    fn head(&mut self, head: &Head, _: &mut Vec<Frame>) {
        self.message["model"] = head.model.as_str().into();
        self.prompt_tokens = head.prompt_tokens;
    }

    fn event(&mut self, event: GenerateEvent, out: &mut Vec<Frame>) {
        let cached = match &event {
            GenerateEvent::Error(error) => {
                out.push(Frame::named("error", &error.body(ErrorFormat::Anthropic)));
                return;
            }
            GenerateEvent::Prefill { cached, .. } => *cached,
            GenerateEvent::Usage(usage) => usage.cached_tokens,
            _ => 0,
        };
        self.start(cached, out);
        match event {
            GenerateEvent::Prefill { done, total, .. } if done < total => out.push(self.ping()),
            GenerateEvent::Prefill { .. } | GenerateEvent::Error(_) => {}
            GenerateEvent::Reasoning { text, .. } => self.thinking(&text, out),
            GenerateEvent::Text { text, .. } => self.text(&text, out),
            GenerateEvent::ToolCallStart { id, name, .. } => {
                let id = id.replacen("call_", "toolu_", 1);
                self.begin(Block::ToolUse { id, name, arguments: String::new() }, out);
            }
            GenerateEvent::ToolCallArguments { delta, .. } => self.arguments(&delta, out),
            GenerateEvent::ToolCallEnd { .. } => self.end(true, out),
            GenerateEvent::Finished { reason, .. } => {
                self.end(reason != Finish::Length, out);
                self.finish = Some(reason);
            }
            GenerateEvent::Usage(usage) => self.complete(&usage, out),
        }
    }

    fn ping(&mut self) -> Frame {
        if self.started {
            Frame::named("ping", &json!({"type": "ping"}))
        } else {
            // A client may insist that the message starts first.
            Frame::Comment("keep-alive".into())
        }
    }
}

/// The whole message.
///
/// # Errors
/// The error that ended the request.
pub(super) async fn whole(
    generation: Generation,
    mut writer: MessageWriter,
) -> Result<Value, ApiError> {
    exhaust(generation, &mut writer).await?;
    Ok(writer.into_message())
}

/// `usage`. Nothing is charged for keeping a prefix, so none counts as created.
fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard",
    })
}
