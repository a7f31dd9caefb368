//! An accepted request: what is known at once, and its events.

use super::error::ApiError;
use super::request::{Finish, GenerateEvent, TokenLogprob, Usage};
use futures_util::stream::{Stream, StreamExt};
use std::pin::Pin;

/// A request that a model works on. Dropping it cancels the work.
pub(crate) struct Generation {
    /// Name of the model that answers.
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// Tokens of the prompts, each counted once.
    pub(crate) prompt_tokens: usize,
    /// Number of replies.
    pub(crate) choices: usize,
    events: Pin<Box<dyn Stream<Item = GenerateEvent> + Send>>,
}

/// What a wire format needs to know before the first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Name of the model that answers.
    pub(crate) model: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// Tokens of the prompts.
    pub(crate) prompt_tokens: usize,
    /// Number of replies.
    pub(crate) choices: usize,
}

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reply {
    /// Reasoning; empty if there was none.
    pub(crate) reasoning: String,
    /// Answer.
    pub(crate) text: String,
    /// Tool calls.
    pub(crate) tool_calls: Vec<ReplyCall>,
    /// Of the answer's tokens, if asked for.
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Why it ended.
    pub(crate) finish: Option<Finish>,
}

/// A tool call of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyCall {
    /// Unique id.
    pub(crate) id: String,
    /// Function.
    pub(crate) name: String,
    /// JSON text.
    pub(crate) arguments: String,
}

impl Generation {
    /// A request whose events come from `events`; nothing comes after the last one.
    pub(crate) fn new(
        head: Head,
        events: impl Stream<Item = GenerateEvent> + Send + 'static,
    ) -> Self {
        let Head { model, created, prompt_tokens, choices } = head;
        Self { model, created, prompt_tokens, choices, events: Box::pin(events) }
    }

    /// What is known before the first event.
    pub(crate) fn head(&self) -> Head {
        Head {
            model: self.model.clone(),
            created: self.created,
            prompt_tokens: self.prompt_tokens,
            choices: self.choices,
        }
    }

    /// The next event; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<GenerateEvent> {
        self.events.next().await
    }

    /// All replies, when they are complete.
    ///
    /// # Errors
    /// The error that ended the request.
    pub(crate) async fn collect(mut self) -> Result<(Vec<Reply>, Usage), ApiError> {
        let mut replies = vec![Reply::default(); self.choices];
        while let Some(event) = self.next().await {
            match event {
                GenerateEvent::Usage(usage) => return Ok((replies, usage)),
                GenerateEvent::Error(error) => return Err(error),
                event => take_in(&mut replies, &event),
            }
        }
        Err(ApiError::internal("the reply broke off"))
    }
}

/// Adds an event to the reply that it belongs to.
pub(crate) fn take_in(replies: &mut [Reply], event: &GenerateEvent) {
    let choice = match event {
        GenerateEvent::Prefill { choice, .. }
        | GenerateEvent::Reasoning { choice, .. }
        | GenerateEvent::Text { choice, .. }
        | GenerateEvent::ToolCallStart { choice, .. }
        | GenerateEvent::ToolCallArguments { choice, .. }
        | GenerateEvent::ToolCallEnd { choice }
        | GenerateEvent::Finished { choice, .. } => *choice,
        GenerateEvent::Usage(_) | GenerateEvent::Error(_) => return,
    };
    let Some(reply) = replies.get_mut(choice) else { return };
    match event {
        GenerateEvent::Reasoning { text, .. } => reply.reasoning.push_str(text),
        GenerateEvent::Text { text, logprobs, .. } => {
            reply.text.push_str(text);
            reply.logprobs.extend(logprobs.iter().cloned());
        }
        GenerateEvent::ToolCallStart { id, name, .. } => {
            let (id, name) = (id.clone(), name.clone());
            reply.tool_calls.push(ReplyCall { id, name, arguments: String::new() });
        }
        GenerateEvent::ToolCallArguments { delta, .. } => {
            if let Some(call) = reply.tool_calls.last_mut() {
                call.arguments.push_str(delta);
            }
        }
        GenerateEvent::Finished { reason, .. } => reply.finish = Some(reason.clone()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn head() -> Head {
        Head { model: "m".into(), created: 0, prompt_tokens: 3, choices: 1 }
    }

    #[tokio::test]
    async fn events_become_replies() {
        let events = vec![
            GenerateEvent::Reasoning { choice: 0, text: "hm".into() },
            GenerateEvent::Text { choice: 0, text: "a".into(), logprobs: Vec::new() },
            GenerateEvent::ToolCallStart {
                choice: 0,
                index: 0,
                id: "call_1".into(),
                name: "f".into(),
            },
            GenerateEvent::ToolCallArguments { choice: 0, index: 0, delta: "{".into() },
            GenerateEvent::ToolCallArguments { choice: 0, index: 0, delta: "}".into() },
            GenerateEvent::ToolCallEnd { choice: 0 },
            GenerateEvent::Finished { choice: 0, reason: Finish::ToolCalls },
            GenerateEvent::Usage(Usage { completion_tokens: 4, ..Usage::default() }),
        ];
        let generation = Generation::new(head(), stream::iter(events));
        let (replies, usage) = generation.collect().await.unwrap();
        assert_eq!((replies[0].reasoning.as_str(), replies[0].text.as_str()), ("hm", "a"));
        assert_eq!(replies[0].tool_calls[0].arguments, "{}");
        assert_eq!(replies[0].finish, Some(Finish::ToolCalls));
        assert_eq!(usage.completion_tokens, 4);
    }

    #[tokio::test]
    async fn a_reply_that_breaks_off_is_an_error() {
        let failed = vec![GenerateEvent::Error(ApiError::internal("no"))];
        let error = Generation::new(head(), stream::iter(failed)).collect().await.unwrap_err();
        assert_eq!(error.message, "no");
        assert!(Generation::new(head(), stream::iter(vec![])).collect().await.is_err());
    }
}
