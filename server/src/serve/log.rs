//! One line of log and the figures of each request.

use super::request::{Finish, Usage};
use serde_json::{Map, Value};
use std::time::Instant;

/// Tells how a request went when it is over, however it ends.
#[derive(Debug)]
pub(crate) struct RequestLog {
    id: String,
    model: String,
    arrived: Instant,
    labels: String,
    prompt_tokens: usize,
    usage: Usage,
    end: &'static str,
    error: Option<String>,
}

impl RequestLog {
    /// A log of a request that has not ended.
    pub(crate) fn new(
        id: &str,
        model: &str,
        arrived: Instant,
        labels: &Map<String, Value>,
    ) -> Self {
        let labels = if labels.is_empty() {
            String::new()
        } else {
            Value::Object(labels.clone()).to_string()
        };
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            arrived,
            labels,
            prompt_tokens: 0,
            usage: Usage::default(),
            end: "cancelled",
            error: None,
        }
    }

    /// Notes the length of the prompts.
    pub(crate) fn prompt_tokens(&mut self, tokens: usize) {
        self.prompt_tokens = tokens;
    }

    /// Notes a good end.
    pub(crate) fn finished(&mut self, usage: &Usage, reason: Option<Finish>) {
        self.usage = *usage;
        self.end = match reason {
            Some(Finish::StopString(_)) => "stop string",
            Some(Finish::ToolCalls) => "tool calls",
            Some(Finish::Length) => "length",
            Some(Finish::Stop) | None => "stop",
        };
    }

    /// Notes a bad end.
    pub(crate) fn failed(&mut self, error: &str) {
        self.end = "error";
        self.error = Some(error.to_owned());
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let usage = &self.usage;
        let seconds = self.arrived.elapsed().as_secs_f64();
        let first_token = usage.first_token.as_secs_f64();
        let rate = match usage.completion_tokens {
            0 | 1 => 0.0,
            tokens => (tokens - 1) as f64 / usage.decode.as_secs_f64().max(1e-9),
        };
        metrics::counter!("forge_replies_total", "end" => self.end).increment(1);
        metrics::counter!("forge_prompt_tokens_total").increment(self.prompt_tokens as u64);
        metrics::counter!("forge_cached_tokens_total").increment(usage.cached_tokens as u64);
        metrics::counter!("forge_generated_tokens_total").increment(usage.completion_tokens as u64);
        metrics::histogram!("forge_reply_seconds").record(seconds);
        if usage.completion_tokens > 0 {
            metrics::histogram!("forge_first_token_seconds").record(first_token);
        }
        tracing::info!(
            request = self.id,
            model = self.model,
            prompt = self.prompt_tokens,
            cached = usage.cached_tokens,
            generated = usage.completion_tokens,
            ttft_s = format_args!("{first_token:.3}"),
            tok_s = format_args!("{rate:.1}"),
            total_s = format_args!("{seconds:.3}"),
            end = self.end,
            error = self.error,
            labels = (!self.labels.is_empty()).then_some(self.labels.as_str()),
            "reply"
        );
    }
}
