//! `/v1/responses`: one item of the output, its events and its final form.

use super::input::SEAL;
use crate::serve::http::sse::Frame;
use serde_json::{Value, json};

/// Numbers events.
#[derive(Debug, Default)]
pub(super) struct Events {
    next: u64,
}

impl Events {
    /// Adds an event of `fields`.
    pub(super) fn emit(&mut self, kind: &'static str, mut fields: Value, out: &mut Vec<Frame>) {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.next.into();
        self.next += 1;
        out.push(Frame::named(kind, &fields));
    }
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reasoning, told as content or as a summary, with a sealed copy or without.
    Reasoning {
        /// As a summary.
        summary: bool,
        /// With a sealed copy.
        encrypted: bool,
    },
    /// Answer.
    Message,
    /// Call of a function.
    Function {
        /// Id that its output refers to.
        call_id: String,
        /// Function.
        name: String,
    },
    /// Call of a tool that takes free text; the model gives it as the argument `input`.
    Custom {
        /// Id that its output refers to.
        call_id: String,
        /// Tool.
        name: String,
    },
}

impl Kind {
    /// How ids of such items begin.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Self::Reasoning { .. } => "rs_",
            Self::Message => "msg_",
            Self::Function { .. } => "fc_",
            Self::Custom { .. } => "ctc_",
        }
    }
}

/// An item on its way.
#[derive(Debug)]
pub(super) struct Item {
    /// Place in the output.
    pub(super) index: usize,
    /// Its id.
    pub(super) id: String,
    /// What it is.
    pub(super) kind: Kind,
    /// Text, or arguments as JSON.
    pub(super) text: String,
    /// Log-probabilities of the text.
    pub(super) logprobs: Vec<Value>,
}

impl Item {
    /// An item that begins.
    pub(super) fn new(index: usize, id: String, kind: Kind) -> Self {
        Self { index, id, kind, text: String::new(), logprobs: Vec::new() }
    }

    /// A finished item as JSON, to be told again from its beginning. The text and the
    /// log-probabilities come beside it.
    pub(super) fn from_json(index: usize, item: &Value) -> Option<(Self, String, Vec<Value>)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (mut told, mut logprobs) = (text(&item["arguments"]), Vec::new());
        let kind = match item["type"].as_str()? {
            "reasoning" => {
                let summary = item["summary"][0]["text"].is_string();
                let part = if summary { &item["summary"][0] } else { &item["content"][0] };
                told = text(&part["text"]);
                Kind::Reasoning { summary, encrypted: item["encrypted_content"].is_string() }
            }
            "message" => {
                told = text(&item["content"][0]["text"]);
                let listed = item["content"][0]["logprobs"].as_array();
                logprobs = listed.cloned().unwrap_or_default();
                Kind::Message
            }
            "function_call" => {
                Kind::Function { call_id: text(&item["call_id"])?, name: text(&item["name"])? }
            }
            "custom_tool_call" => {
                told = Some(json!({"input": item["input"]}).to_string());
                Kind::Custom { call_id: text(&item["call_id"])?, name: text(&item["name"])? }
            }
            _ => return None,
        };
        Some((Self::new(index, text(&item["id"])?, kind), told.unwrap_or_default(), logprobs))
    }

    /// The item as JSON; `complete` = with its text.
    fn json(&self, status: &str, complete: bool) -> Value {
        let parts = |part: Value| if complete { json!([part]) } else { json!([]) };
        match &self.kind {
            Kind::Reasoning { summary, encrypted } => {
                let (mut told, mut content) = (json!([]), json!([]));
                if *summary {
                    told = parts(self.part());
                } else {
                    content = parts(self.part());
                }
                let sealed = (*encrypted && complete).then(|| format!("{SEAL}{}", self.text));
                json!({
                    "id": self.id, "type": "reasoning", "status": status, "summary": told,
                    "content": content, "encrypted_content": sealed,
                })
            }
            Kind::Message => json!({
                "id": self.id, "type": "message", "status": status, "role": "assistant",
                "content": parts(self.part()),
            }),
            Kind::Function { call_id, name } => json!({
                "id": self.id, "type": "function_call", "status": status, "call_id": call_id,
                "name": name, "arguments": if complete { self.text.as_str() } else { "" },
            }),
            Kind::Custom { call_id, name } => json!({
                "id": self.id, "type": "custom_tool_call", "status": status, "call_id": call_id,
                "name": name, "input": if complete { self.custom_input() } else { String::new() },
            }),
        }
    }

    /// The part with the text.
    fn part(&self) -> Value {
        match &self.kind {
            Kind::Reasoning { summary: true, .. } => {
                json!({"type": "summary_text", "text": self.text})
            }
            Kind::Reasoning { .. } => json!({"type": "reasoning_text", "text": self.text}),
            _ => json!({
                "type": "output_text", "text": self.text, "annotations": [],
                "logprobs": self.logprobs,
            }),
        }
    }

    /// Free text out of the arguments; of arguments that were cut off, nothing.
    fn custom_input(&self) -> String {
        let arguments: Value = serde_json::from_str(&self.text).unwrap_or_default();
        arguments["input"].as_str().unwrap_or_default().to_owned()
    }

    /// Where an event belongs.
    fn place(&self) -> Value {
        let mut place = json!({"item_id": self.id, "output_index": self.index});
        match &self.kind {
            Kind::Reasoning { summary: true, .. } => place["summary_index"] = 0.into(),
            Kind::Reasoning { .. } | Kind::Message => place["content_index"] = 0.into(),
            Kind::Function { .. } | Kind::Custom { .. } => {}
        }
        place
    }

    fn placed(&self, key: &str, value: Value) -> Value {
        let mut fields = self.place();
        fields[key] = value;
        fields
    }

    /// Events of the beginning.
    pub(super) fn start(&self, events: &mut Events, out: &mut Vec<Frame>) {
        let added = json!({"output_index": self.index, "item": self.json("in_progress", false)});
        events.emit("response.output_item.added", added, out);
        let kind = match &self.kind {
            Kind::Reasoning { summary: true, .. } => "response.reasoning_summary_part.added",
            Kind::Reasoning { .. } | Kind::Message => "response.content_part.added",
            Kind::Function { .. } | Kind::Custom { .. } => return,
        };
        events.emit(kind, self.placed("part", self.part()), out);
    }

    /// Takes in more text, with its events.
    pub(super) fn push(
        &mut self,
        text: &str,
        logprobs: Vec<Value>,
        events: &mut Events,
        out: &mut Vec<Frame>,
    ) {
        self.text.push_str(text);
        let mut fields = self.placed("delta", text.into());
        let kind = match &self.kind {
            Kind::Reasoning { summary: true, .. } => "response.reasoning_summary_text.delta",
            Kind::Reasoning { .. } => "response.reasoning_text.delta",
            Kind::Message => {
                fields["logprobs"] = logprobs.iter().cloned().collect();
                "response.output_text.delta"
            }
            Kind::Function { .. } => "response.function_call_arguments.delta",
            // Known when the arguments are complete.
            Kind::Custom { .. } => return,
        };
        self.logprobs.extend(logprobs);
        events.emit(kind, fields, out);
    }

    /// Events of the end; the final item.
    pub(super) fn end(self, status: &str, events: &mut Events, out: &mut Vec<Frame>) -> Value {
        let text = |key: &str| self.placed(key, self.text.as_str().into());
        match &self.kind {
            Kind::Reasoning { summary: true, .. } => {
                events.emit("response.reasoning_summary_text.done", text("text"), out);
                let part = self.placed("part", self.part());
                events.emit("response.reasoning_summary_part.done", part, out);
            }
            Kind::Reasoning { .. } => {
                events.emit("response.reasoning_text.done", text("text"), out);
                let part = self.placed("part", self.part());
                events.emit("response.content_part.done", part, out);
            }
            Kind::Message => {
                let mut done = text("text");
                done["logprobs"] = self.logprobs.iter().cloned().collect();
                events.emit("response.output_text.done", done, out);
                let part = self.placed("part", self.part());
                events.emit("response.content_part.done", part, out);
            }
            Kind::Function { name, .. } => {
                let mut done = text("arguments");
                done["name"] = name.as_str().into();
                events.emit("response.function_call_arguments.done", done, out);
            }
            Kind::Custom { .. } => {
                let input = self.custom_input();
                let delta = self.placed("delta", input.as_str().into());
                events.emit("response.custom_tool_call_input.delta", delta, out);
                let done = self.placed("input", input.into());
                events.emit("response.custom_tool_call_input.done", done, out);
            }
        }
        let item = self.json(status, true);
        let done = json!({"output_index": self.index, "item": item});
        events.emit("response.output_item.done", done, out);
        item
    }
}
