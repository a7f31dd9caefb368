//! One reply: from a request to text on its way, by stepping the engine.

use crate::interrupt::Watch;
use crate::models::TextModel;
use crate::reasoning::ReasoningSplitter;
use crate::stop::StopStrings;
use anyhow::Result;
use forge_core::engine::{Engine, Event, FinishReason, Request};
use forge_core::{Backend, TokenId};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Takes in a piece of the reply, and whether it is reasoning.
pub(crate) type Writer<'a> = dyn FnMut(&str, bool) -> io::Result<()> + 'a;

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A stop token or stop string.
    Stop,
    /// The most tokens asked for.
    Length,
    /// The context is full.
    Context,
    /// Ctrl-C.
    Interrupted,
}

/// A finished reply.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Tokens, those of a stop string included.
    pub(crate) tokens: Vec<TokenId>,
    /// Text as shown.
    pub(crate) text: String,
    /// Why it ended.
    pub(crate) end: End,
    /// A stop string ended it: the text is shorter than the tokens.
    pub(crate) cut: bool,
    /// Figures.
    pub(crate) stats: Stats,
}

/// Figures of a reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    /// Those that were computed before.
    pub(crate) reused_tokens: usize,
    /// Tokens of the reply.
    pub(crate) generated_tokens: usize,
    /// From the request to the first token.
    pub(crate) prefill: Duration,
    /// From the first token to the last.
    pub(crate) decode: Duration,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let computed = self.prompt_tokens - self.reused_tokens;
        write!(f, "prompt {} tokens", self.prompt_tokens)?;
        if self.reused_tokens > 0 {
            write!(f, " ({} cached)", self.reused_tokens)?;
        }
        write!(
            f,
            ", {:.1} tok/s; generated {} tokens",
            rate(computed, self.prefill),
            self.generated_tokens
        )?;
        // The first token belongs to the prompt's pass.
        if self.generated_tokens > 1 {
            write!(f, ", {:.1} tok/s", rate(self.generated_tokens - 1, self.decode))?;
        }
        Ok(())
    }
}

/// Text on its way from tokens to the reader.
struct TextPath<'a> {
    stop: StopStrings,
    splitter: ReasoningSplitter,
    text: String,
    write: &'a mut Writer<'a>,
}

impl TextPath<'_> {
    fn push(&mut self, piece: &str) -> io::Result<()> {
        let safe = self.stop.push(piece);
        self.show(&safe)
    }

    fn show(&mut self, safe: &str) -> io::Result<()> {
        self.text.push_str(safe);
        for (piece, reasoning) in self.splitter.push(safe) {
            (self.write)(&piece, reasoning)?;
        }
        Ok(())
    }

    fn finish(mut self, rest: Option<String>) -> io::Result<String> {
        if !self.stop.found() {
            self.push(&rest.unwrap_or_default())?;
            let held = self.stop.finish();
            self.show(&held)?;
        }
        if let Some((piece, reasoning)) = self.splitter.finish() {
            (self.write)(&piece, reasoning)?;
        }
        Ok(self.text)
    }
}

/// Runs `request` to its end, giving the text to `write` as it becomes certain. `prompt` is the
/// text of the prompt. Ctrl-C ends the reply early.
///
/// # Errors
/// Those of the engine and of `write`.
pub(crate) fn generate<'a, B: Backend>(
    engine: &mut Engine<B>,
    model: &TextModel,
    request: Request,
    prompt: &str,
    stops: &[String],
    write: &'a mut Writer<'a>,
) -> Result<Reply> {
    let mut path = TextPath {
        stop: StopStrings::new(stops)?,
        splitter: ReasoningSplitter::after(prompt),
        text: String::new(),
        write,
    };
    let mut decoder = model.tokenizer.stream_decoder(true);
    let mut clock = Clock::start(request.prompt.len());
    let watch = Watch::start();
    let id = engine.submit(request)?;
    let mut tokens = Vec::new();
    let mut end = None;
    while end.is_none() {
        for event in engine.step()? {
            match event {
                Event::Token { token, .. } => {
                    clock.token();
                    tokens.push(token);
                    path.push(&decoder.push(token).unwrap_or_default())?;
                }
                Event::Finished { reason, timing, .. } => {
                    clock.stats.reused_tokens = timing.reused_tokens;
                    end = Some(match reason {
                        FinishReason::Stop => End::Stop,
                        FinishReason::Length => End::Length,
                        FinishReason::Context => End::Context,
                        FinishReason::Cancelled => End::Interrupted,
                    });
                }
                Event::Failed { error, .. } => return Err(error.into()),
                Event::Prefill { .. } => {}
            }
        }
        if path.stop.found() {
            end = Some(End::Stop);
            engine.cancel(id)?;
        } else if end.is_none() && watch.fired() {
            end = Some(End::Interrupted);
            engine.cancel(id)?;
        }
    }
    let cut = path.stop.found();
    let text = path.finish(decoder.finish())?;
    Ok(Reply { tokens, text, end: end.unwrap_or(End::Stop), cut, stats: clock.stats })
}

/// Takes the times of a reply.
struct Clock {
    start: Instant,
    first: Option<Instant>,
    stats: Stats,
}

impl Clock {
    fn start(prompt_tokens: usize) -> Self {
        let stats = Stats { prompt_tokens, ..Stats::default() };
        Self { start: Instant::now(), first: None, stats }
    }

    fn token(&mut self) {
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        self.stats.prefill = first - self.start;
        self.stats.decode = now - first;
        self.stats.generated_tokens += 1;
    }
}
