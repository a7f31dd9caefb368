//! One reply: from tokens to the events that a client sees.

use super::request::{Finish, GenerateEvent, TokenEntry, TokenLogprob};
use super::thinking::ThinkingSplitter;
use super::tools::{ToolEvent, ToolParser};
use crate::models::TextModel;
use crate::stop::StopStrings;
use forge_core::TokenId;
use forge_core::engine::{FinishReason, TokenLogprobs};
use forge_core::tokenizer::StreamDecoder;
use rand::RngExt;
use std::collections::VecDeque;
use std::sync::Arc;

/// Letters and digits of an id.
const ID_CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// A new id that begins with `prefix`.
pub(crate) fn new_id(prefix: &str) -> String {
    let mut random = rand::rng();
    let letter = |_| char::from(ID_CHARACTERS[random.random_range(0..ID_CHARACTERS.len())]);
    prefix.chars().chain((0..24).map(letter)).collect()
}

/// A reply on its way. What stop strings look at is the answer; reasoning and its tags are not.
pub(crate) struct ReplyPath {
    choice: usize,
    model: Arc<TextModel>,
    decoder: StreamDecoder,
    thinking: ThinkingSplitter,
    stops: StopStrings,
    tools: Option<ToolParser>,
    calls: usize,
    logprobs: Vec<TokenLogprob>,
    /// Tokens of the reply.
    pub(crate) tokens: usize,
    /// Those of them that reason.
    pub(crate) reasoning_tokens: usize,
    finished: bool,
}

impl ReplyPath {
    /// A path for reply number `choice`, split by `thinking`.
    pub(crate) fn new(
        choice: usize,
        model: &Arc<TextModel>,
        thinking: ThinkingSplitter,
        stops: StopStrings,
        tools: Option<ToolParser>,
    ) -> Self {
        Self {
            choice,
            model: Arc::clone(model),
            decoder: model.tokenizer.stream_decoder(true),
            thinking,
            stops,
            tools,
            calls: 0,
            logprobs: Vec::new(),
            tokens: 0,
            reasoning_tokens: 0,
            finished: false,
        }
    }

    /// True once nothing more comes.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Takes in a token. True if a stop string ended the reply with it.
    pub(crate) fn token(
        &mut self,
        token: TokenId,
        logprobs: Option<TokenLogprobs>,
        out: &mut VecDeque<GenerateEvent>,
    ) -> bool {
        self.tokens += 1;
        let reasoned = self.thinking.is_reasoning();
        let text = self.decoder.push(token).unwrap_or_default();
        let pieces = self.thinking.push(&text);
        if reasoned || self.thinking.is_reasoning() {
            self.reasoning_tokens += 1;
        } else if let Some(logprobs) = logprobs {
            self.logprobs.push(self.entry(token, &logprobs));
        }
        self.show(pieces, out);
        if self.stops.found() {
            let matched = self.stops.matched().unwrap_or_default().to_owned();
            self.logprobs.clear();
            self.end(Finish::StopString(matched), out);
        }
        self.finished
    }

    /// Ends the reply; all that was held back is told.
    pub(crate) fn finish(&mut self, reason: FinishReason, out: &mut VecDeque<GenerateEvent>) {
        if self.finished {
            return;
        }
        let rest = self.decoder.finish().unwrap_or_default();
        let mut pieces = self.thinking.push(&rest);
        pieces.extend(self.thinking.finish());
        self.show(pieces, out);
        let held = self.stops.finish();
        self.answer(held, out);
        let reason = match reason {
            FinishReason::Stop | FinishReason::Cancelled if self.calls > 0 => Finish::ToolCalls,
            FinishReason::Stop | FinishReason::Cancelled => Finish::Stop,
            FinishReason::Length | FinishReason::Context => Finish::Length,
        };
        self.end(reason, out);
    }

    fn end(&mut self, reason: Finish, out: &mut VecDeque<GenerateEvent>) {
        let rest = self.tools.as_mut().map(ToolParser::finish).unwrap_or_default();
        self.tell(rest, out);
        if !self.logprobs.is_empty() {
            self.text(String::new(), out);
        }
        self.finished = true;
        out.push_back(GenerateEvent::Finished { choice: self.choice, reason });
    }

    fn show(&mut self, pieces: Vec<(String, bool)>, out: &mut VecDeque<GenerateEvent>) {
        for (text, reasoning) in pieces {
            if reasoning {
                out.push_back(GenerateEvent::Reasoning { choice: self.choice, text });
            } else {
                let safe = self.stops.push(&text);
                self.answer(safe, out);
            }
        }
    }

    fn answer(&mut self, text: String, out: &mut VecDeque<GenerateEvent>) {
        if text.is_empty() {
            return;
        }
        match &mut self.tools {
            Some(tools) => {
                let events = tools.push(&text);
                self.tell(events, out);
            }
            None => self.text(text, out),
        }
    }

    fn text(&mut self, text: String, out: &mut VecDeque<GenerateEvent>) {
        let logprobs = std::mem::take(&mut self.logprobs);
        out.push_back(GenerateEvent::Text { choice: self.choice, text, logprobs });
    }

    fn tell(&mut self, events: Vec<ToolEvent>, out: &mut VecDeque<GenerateEvent>) {
        let choice = self.choice;
        for event in events {
            let index = self.calls.saturating_sub(1);
            match event {
                ToolEvent::Text(text) => self.text(text, out),
                ToolEvent::Start(name) => {
                    let index = self.calls;
                    self.calls += 1;
                    let id = new_id("call_");
                    out.push_back(GenerateEvent::ToolCallStart { choice, index, id, name });
                }
                ToolEvent::Arguments(delta) => {
                    out.push_back(GenerateEvent::ToolCallArguments { choice, index, delta });
                }
                ToolEvent::End => out.push_back(GenerateEvent::ToolCallEnd { choice }),
            }
        }
    }

    fn entry(&self, token: TokenId, logprobs: &TokenLogprobs) -> TokenLogprob {
        let entry = |id: TokenId, logprob: f32| TokenEntry {
            id,
            bytes: self.model.tokenizer.token_bytes(id).unwrap_or_default().to_vec(),
            logprob,
        };
        TokenLogprob {
            token: entry(token, logprobs.chosen),
            top: logprobs.top.iter().map(|(id, logprob)| entry(*id, *logprob)).collect(),
        }
    }
}
