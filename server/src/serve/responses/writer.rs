//! `/v1/responses`: the response, while it is made. Whole and streamed responses, and streams of
//! stored ones, are written by the same code.

use super::item::{Events, Item, Kind};
use super::store::{ResponseStore, Stored};
use crate::serve::error::{ApiError, ErrorKind};
use crate::serve::generation::{Generation, Head};
use crate::serve::http::sse::{Encoder, Frame, exhaust};
use crate::serve::openai::logprob_entries;
use crate::serve::reply::new_id;
use crate::serve::request::{Finish, GenerateEvent, TokenLogprob, Usage};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a response is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Form {
    /// What it repeats of the request.
    pub(super) response: Value,
    /// Reasoning is told as a summary.
    pub(super) summary: bool,
    /// Reasoning comes with a sealed copy.
    pub(super) encrypted: bool,
    /// Tools that take free text.
    pub(super) custom: HashSet<String>,
}

/// Where the response is kept at its end, and what belongs to it.
pub(super) struct Keep {
    /// Store.
    pub(super) store: Arc<ResponseStore>,
    /// Items of the request.
    pub(super) input: Vec<Value>,
}

/// Writes one response.
pub(super) struct ResponseWriter {
    response: Value,
    form: Form,
    keep: Option<Keep>,
    events: Events,
    output: Vec<Value>,
    open: Option<Item>,
    /// Log-probabilities of tokens whose text is yet to come.
    early: Vec<Value>,
    finish: Option<Finish>,
    begun: bool,
}

impl ResponseWriter {
    /// A writer of a response that is kept if `keep` says where.
    pub(super) fn new(mut form: Form, keep: Option<Keep>) -> Self {
        let mut response = std::mem::take(&mut form.response);
        if !response.is_object() {
            response = json!({});
        }
        for (key, value) in [
            ("id", new_id("resp_").into()),
            ("object", "response".into()),
            ("created_at", now().into()),
            ("status", "in_progress".into()),
            ("background", false.into()),
            ("completed_at", Value::Null),
            ("error", Value::Null),
            ("incomplete_details", Value::Null),
            ("model", "".into()),
            ("output", json!([])),
            ("service_tier", "default".into()),
            ("truncation", "disabled".into()),
            ("usage", Value::Null),
        ] {
            response[key] = value;
        }
        Self {
            response,
            form,
            keep,
            events: Events::default(),
            output: Vec::new(),
            open: None,
            early: Vec::new(),
            finish: None,
            begun: false,
        }
    }

    /// The response as it stands.
    pub(super) fn into_response(self) -> Value {
        self.response
    }

    fn begin(&mut self, out: &mut Vec<Frame>) {
        self.begun = true;
        for kind in ["response.created", "response.in_progress"] {
            self.events.emit(kind, json!({"response": self.response}), out);
        }
    }

    /// Ends the open item and begins one of `kind`.
    fn open(&mut self, kind: Kind, out: &mut Vec<Frame>) {
        self.close("completed", out);
        let item = Item::new(self.output.len(), new_id(kind.prefix()), kind);
        item.start(&mut self.events, out);
        self.open = Some(item);
    }

    fn close(&mut self, status: &str, out: &mut Vec<Frame>) {
        if let Some(item) = self.open.take() {
            self.output.push(item.end(status, &mut self.events, out));
        }
    }

    fn push(&mut self, text: &str, logprobs: Vec<Value>, out: &mut Vec<Frame>) {
        if let Some(item) = &mut self.open {
            item.push(text, logprobs, &mut self.events, out);
        }
    }

    fn is_open(&self, wanted: fn(&Kind) -> bool) -> bool {
        self.open.as_ref().is_some_and(|item| wanted(&item.kind))
    }

    fn reasoning(&mut self, text: &str, out: &mut Vec<Frame>) {
        if !self.is_open(|kind| matches!(kind, Kind::Reasoning { .. })) {
            let (summary, encrypted) = (self.form.summary, self.form.encrypted);
            self.open(Kind::Reasoning { summary, encrypted }, out);
        }
        self.push(text, Vec::new(), out);
    }

    fn text(&mut self, text: &str, logprobs: &[TokenLogprob], out: &mut Vec<Frame>) {
        self.early.extend(logprob_entries(logprobs));
        if text.is_empty() {
            return;
        }
        if !self.is_open(|kind| *kind == Kind::Message) {
            self.open(Kind::Message, out);
        }
        let logprobs = std::mem::take(&mut self.early);
        self.push(text, logprobs, out);
    }

    fn call(&mut self, call_id: String, name: String, out: &mut Vec<Frame>) {
        // They belong to the markup of the call.
        self.early.clear();
        let kind = if self.form.custom.contains(&name) {
            Kind::Custom { call_id, name }
        } else {
            Kind::Function { call_id, name }
        };
        self.open(kind, out);
    }

    fn finished(&mut self, finish: Finish, out: &mut Vec<Frame>) {
        let cut = finish == Finish::Length;
        let answered = |item: &Value| item["type"] != "reasoning";
        let reasoning = self.is_open(|kind| matches!(kind, Kind::Reasoning { .. }));
        let silent = !self.output.iter().any(answered) && (self.open.is_none() || reasoning);
        if silent && !cut {
            self.open(Kind::Message, out);
        }
        self.close(if cut { "incomplete" } else { "completed" }, out);
        self.finish = Some(finish);
    }

    fn complete(&mut self, usage: &Usage, out: &mut Vec<Frame>) {
        let cut = self.finish == Some(Finish::Length);
        let (status, kind) = if cut {
            self.response["incomplete_details"] = json!({"reason": "max_output_tokens"});
            ("incomplete", "response.incomplete")
        } else {
            self.response["completed_at"] = now().into();
            ("completed", "response.completed")
        };
        self.response["status"] = status.into();
        self.response["usage"] = usage_json(usage);
        self.response["output"] = std::mem::take(&mut self.output).into();
        self.store();
        self.events.emit(kind, json!({"response": self.response}), out);
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<Frame>) {
        if !self.begun {
            self.begin(out);
        }
        self.close("incomplete", out);
        let code = match error.kind {
            ErrorKind::Busy => "rate_limit_exceeded",
            ErrorKind::InvalidRequest => error.code.unwrap_or("invalid_prompt"),
            _ => "server_error",
        };
        self.response["status"] = "failed".into();
        self.response["error"] = json!({"code": code, "message": error.message});
        self.response["output"] = std::mem::take(&mut self.output).into();
        self.store();
        self.events.emit("response.failed", json!({"response": self.response}), out);
    }

    fn store(&mut self) {
        let Some(Keep { store, input }) = self.keep.take() else { return };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let previous = text(&self.response["previous_response_id"]);
        let id = text(&self.response["id"]).unwrap_or_default();
        store.insert(&id, Stored { response: self.response.clone(), input, previous });
    }
}

impl Encoder for ResponseWriter {
    fn head(&mut self, head: &Head, out: &mut Vec<Frame>) {
        self.response["model"] = head.model.as_str().into();
        self.response["created_at"] = head.created.into();
        self.begin(out);
    }

    fn event(&mut self, event: GenerateEvent, out: &mut Vec<Frame>) {
        match event {
            // For people who wait for a long prompt; programs do not see comments.
            GenerateEvent::Prefill { done, total, .. } if done < total => {
                out.push(Frame::Comment(format!("prefill {done}/{total}")));
            }
            GenerateEvent::Prefill { .. } => {}
            GenerateEvent::Reasoning { text, .. } => self.reasoning(&text, out),
            GenerateEvent::Text { text, logprobs, .. } => self.text(&text, &logprobs, out),
            GenerateEvent::ToolCallStart { id, name, .. } => self.call(id, name, out),
            GenerateEvent::ToolCallArguments { delta, .. } => self.push(&delta, Vec::new(), out),
            GenerateEvent::ToolCallEnd { .. } => self.close("completed", out),
            GenerateEvent::Finished { reason, .. } => self.finished(reason, out),
            GenerateEvent::Usage(usage) => self.complete(&usage, out),
            GenerateEvent::Error(error) => self.fail(&error, out),
        }
    }
}

/// The whole response.
///
/// # Errors
/// The error that ended the request.
pub(super) async fn whole(
    generation: Generation,
    mut writer: ResponseWriter,
) -> Result<Value, ApiError> {
    exhaust(generation, &mut writer).await?;
    Ok(writer.into_response())
}

/// The events of a stored response, as if it were made now, after number `after`.
pub(super) fn replay(response: &Value, after: Option<u64>) -> Vec<Frame> {
    let mut events = Events::default();
    let mut out = Vec::new();
    let mut begun = response.clone();
    for (key, value) in [
        ("status", "in_progress".into()),
        ("output", json!([])),
        ("usage", Value::Null),
        ("error", Value::Null),
        ("completed_at", Value::Null),
        ("incomplete_details", Value::Null),
    ] {
        begun[key] = value;
    }
    for kind in ["response.created", "response.in_progress"] {
        events.emit(kind, json!({"response": begun}), &mut out);
    }
    for (index, item) in response["output"].as_array().into_iter().flatten().enumerate() {
        if let Some((mut told, text, logprobs)) = Item::from_json(index, item) {
            told.start(&mut events, &mut out);
            if !text.is_empty() {
                told.push(&text, logprobs, &mut events, &mut out);
            }
            told.end(item["status"].as_str().unwrap_or("completed"), &mut events, &mut out);
        }
    }
    let kind = match response["status"].as_str() {
        Some("incomplete") => "response.incomplete",
        Some("failed") => "response.failed",
        _ => "response.completed",
    };
    events.emit(kind, json!({"response": response}), &mut out);
    // Every event so far is a frame, in order.
    let seen =
        after.map_or(0, |after| usize::try_from(after.saturating_add(1)).unwrap_or(usize::MAX));
    out.drain(..seen.min(out.len()));
    out
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}
