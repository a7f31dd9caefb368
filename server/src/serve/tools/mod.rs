//! Tool calls in a reply: found while it arrives, and told as pieces of JSON.

mod hermes;
mod qwen_xml;
mod schema;

use forge_core::chat::ChatTemplate;
pub(crate) use schema::{ToolSet, ToolSpec, admits_text};

/// Opens a call.
pub(crate) const OPEN: &str = "<tool_call>";
/// Ends a call.
pub(crate) const CLOSE: &str = "</tool_call>";

/// How a model writes its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolSyntax {
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>`, as Qwen3-Coder and Qwen3.5.
    QwenXml,
    /// `{"name": NAME, "arguments": {…}}`, as Hermes and Qwen3.
    HermesJson,
}

impl ToolSyntax {
    /// The form that a chat template teaches, if it knows tools.
    pub(crate) fn of(template: &ChatTemplate) -> Option<Self> {
        if !template.mentions(OPEN) {
            None
        } else if template.mentions("<function=") {
            Some(Self::QwenXml)
        } else {
            Some(Self::HermesJson)
        }
    }
}

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolEvent {
    /// Text for the reader.
    Text(String),
    /// A call of this function begins.
    Start(String),
    /// More of its arguments' JSON.
    Arguments(String),
    /// The call is complete.
    End,
}

/// What became of a call's text so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The call goes on.
    More,
    /// The call is complete; this many bytes of the text lie behind it.
    Done(usize),
    /// This is no call.
    Malformed,
}

/// Where the parser is.
#[derive(Debug)]
enum State {
    /// In text.
    Text,
    /// In a call.
    Call(Call),
    /// Behind a call, nothing but white space so far.
    Behind,
}

#[derive(Debug)]
enum Call {
    Xml(qwen_xml::XmlCall),
    Hermes(hermes::HermesCall),
}

/// Finds the calls in a reply.
///
/// With `guarded`, a grammar makes sure that what begins as a call is one, and arguments are told
/// as they arrive. Without, a call is told when it is complete; what is none comes back as text.
#[derive(Debug)]
pub(crate) struct ToolParser {
    syntax: ToolSyntax,
    tools: ToolSet,
    guarded: bool,
    state: State,
    held: String,
    /// White space before the call that is being read: text, if it is no call.
    layout: String,
    /// Text of a guarded call of which nothing has been told.
    raw: String,
    /// The call that is being read has been told.
    told: bool,
}

impl ToolParser {
    /// A parser for one reply.
    pub(crate) fn new(syntax: ToolSyntax, tools: ToolSet, guarded: bool) -> Self {
        Self {
            syntax,
            tools,
            guarded,
            state: State::Text,
            held: String::new(),
            layout: String::new(),
            raw: String::new(),
            told: false,
        }
    }

    /// Takes in a piece of the reply and returns what is certain.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<ToolEvent> {
        self.held.push_str(piece);
        let mut out = Vec::new();
        while self.advance(&mut out) {}
        out
    }

    /// Returns what was held back when the reply ends.
    pub(crate) fn finish(&mut self) -> Vec<ToolEvent> {
        let rest = std::mem::take(&mut self.held);
        let text = match std::mem::replace(&mut self.state, State::Text) {
            State::Text => rest,
            State::Behind if rest.trim().is_empty() => String::new(),
            State::Behind => rest,
            // A call that is cut off has been told as far as it came.
            State::Call(_) if self.told => String::new(),
            State::Call(_) => format!("{}{OPEN}{}{rest}", self.layout, self.raw),
        };
        if text.is_empty() { Vec::new() } else { vec![ToolEvent::Text(text)] }
    }

    /// Goes on as far as the text allows; true if there may be more to do.
    fn advance(&mut self, out: &mut Vec<ToolEvent>) -> bool {
        match &mut self.state {
            State::Text | State::Behind => self.advance_text(out),
            State::Call(_) if self.guarded => self.advance_call(out),
            State::Call(_) => self.whole_call(out),
        }
    }

    fn advance_text(&mut self, out: &mut Vec<ToolEvent>) -> bool {
        let behind = matches!(self.state, State::Behind);
        if let Some(start) = self.held.find(OPEN) {
            let rest = self.held.split_off(start + OPEN.len());
            let text = std::mem::replace(&mut self.held, rest);
            let certain = text[..start].trim_end();
            if !certain.is_empty() {
                out.push(ToolEvent::Text(certain.to_owned()));
            }
            self.layout = text[certain.len()..start].to_owned();
            self.state = State::Call(self.new_call());
            self.raw.clear();
            self.told = false;
            return true;
        }
        if behind && self.held.trim().is_empty() {
            return false;
        }
        let tag = longest_beginning(OPEN, &self.held);
        // White space before a call is layout.
        let certain = self.held[..self.held.len() - tag].trim_end().len();
        if certain > 0 {
            let rest = self.held.split_off(certain);
            out.push(ToolEvent::Text(std::mem::replace(&mut self.held, rest)));
            self.state = State::Text;
        }
        false
    }

    fn new_call(&self) -> Call {
        match self.syntax {
            ToolSyntax::QwenXml => Call::Xml(qwen_xml::XmlCall::new()),
            ToolSyntax::HermesJson => Call::Hermes(hermes::HermesCall::new()),
        }
    }

    fn advance_call(&mut self, out: &mut Vec<ToolEvent>) -> bool {
        let piece = std::mem::take(&mut self.held);
        let State::Call(call) = &mut self.state else { return false };
        let before = out.len();
        let progress = match call {
            Call::Xml(call) => call.push(&piece, &self.tools, out),
            Call::Hermes(call) => call.push(&piece, &self.tools, out),
        };
        self.told |= out.len() > before;
        if !self.told {
            self.raw.push_str(&piece);
        }
        match progress {
            Progress::More => false,
            Progress::Done(behind) => {
                out.push(ToolEvent::End);
                self.held = piece[piece.len() - behind.min(piece.len())..].to_owned();
                self.state = State::Behind;
                true
            }
            Progress::Malformed if self.told => {
                self.state = State::Behind;
                false
            }
            // The model spelled the tag out, and the grammar did not see it.
            Progress::Malformed => {
                let text = format!("{}{OPEN}{}", self.layout, self.raw);
                out.push(ToolEvent::Text(text));
                self.state = State::Text;
                false
            }
        }
    }

    /// Parses a call once its end is here.
    fn whole_call(&mut self, out: &mut Vec<ToolEvent>) -> bool {
        let Some(end) = self.held.find(CLOSE) else { return false };
        let rest = self.held.split_off(end + CLOSE.len());
        let body = std::mem::replace(&mut self.held, rest);
        let mut events = Vec::new();
        let progress = match self.new_call() {
            Call::Xml(mut call) => call.push(&body, &self.tools, &mut events),
            Call::Hermes(_) => hermes::whole(&body[..end], &self.tools, &mut events),
        };
        if progress == Progress::Done(0) {
            out.append(&mut events);
            out.push(ToolEvent::End);
            self.state = State::Behind;
        } else {
            let layout = std::mem::take(&mut self.layout);
            out.push(ToolEvent::Text(format!("{layout}{OPEN}{body}")));
            self.state = State::Text;
        }
        true
    }
}

/// Bytes of the longest end of `text` that begins `tag`.
fn longest_beginning(tag: &str, text: &str) -> usize {
    (1..tag.len())
        .rev()
        .find(|&bytes| tag.is_char_boundary(bytes) && text.ends_with(&tag[..bytes]))
        .unwrap_or(0)
}

/// The inside of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests;
