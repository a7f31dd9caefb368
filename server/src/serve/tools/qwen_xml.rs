//! Calls as `<function=NAME>`, `<parameter=KEY>` blocks. One line end on each side of a value is
//! layout; everything else of it is the value.

use super::schema::{convert, is_text};
use super::{CLOSE, Progress, ToolEvent, ToolSet, escaped, longest_beginning};
use serde_json::Value;

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
/// A value's end where its layout is as it should be.
const VALUE_END: &str = "\n</parameter>\n";

#[derive(Debug)]
enum State {
    Head,
    /// Between parameters.
    Parameters,
    /// In a value of this schema. Text is told while it arrives.
    Value {
        schema: Option<Value>,
        text: bool,
        begun: bool,
        told: bool,
    },
    /// Behind the function.
    Tail,
}

/// A call that is being read.
#[derive(Debug)]
pub(super) struct XmlCall {
    state: State,
    name: String,
    parameters: usize,
    held: String,
}

impl XmlCall {
    pub(super) fn new() -> Self {
        Self { state: State::Head, name: String::new(), parameters: 0, held: String::new() }
    }

    /// Takes in more of the text behind `<tool_call>`.
    pub(super) fn push(
        &mut self,
        piece: &str,
        tools: &ToolSet,
        out: &mut Vec<ToolEvent>,
    ) -> Progress {
        self.held.push_str(piece);
        loop {
            let step = match &self.state {
                State::Head => self.head(tools, out),
                State::Parameters => self.between(tools, out),
                State::Value { .. } => self.value(out),
                State::Tail => return self.tail(),
            };
            match step {
                Step::Again => {}
                Step::Wait => return Progress::More,
                Step::Malformed => return Progress::Malformed,
            }
        }
    }

    fn head(&mut self, tools: &ToolSet, out: &mut Vec<ToolEvent>) -> Step {
        let Some(name) = self.tag(FUNCTION) else { return self.wait_for(&[FUNCTION]) };
        if tools.get(&name).is_none() {
            return Step::Malformed;
        }
        out.push(ToolEvent::Start(name.clone()));
        out.push(ToolEvent::Arguments("{".into()));
        self.name = name;
        self.state = State::Parameters;
        Step::Again
    }

    fn between(&mut self, tools: &ToolSet, out: &mut Vec<ToolEvent>) -> Step {
        let text = self.held.trim_start();
        if let Some(rest) = text.strip_prefix(FUNCTION_END) {
            self.held = rest.to_owned();
            out.push(ToolEvent::Arguments("}".into()));
            self.state = State::Tail;
            return Step::Again;
        }
        let Some(key) = self.tag(PARAMETER) else {
            return self.wait_for(&[PARAMETER, FUNCTION_END]);
        };
        let comma = if self.parameters == 0 { "" } else { ", " };
        out.push(ToolEvent::Arguments(format!("{comma}\"{}\": ", escaped(&key))));
        self.parameters += 1;
        let schema = tools.get(&self.name).and_then(|tool| tool.parameter(&key));
        let text = is_text(schema.as_ref());
        self.state = State::Value { schema, text, begun: false, told: false };
        Step::Again
    }

    fn value(&mut self, out: &mut Vec<ToolEvent>) -> Step {
        let State::Value { schema, text, begun, told } = &mut self.state else {
            return Step::Malformed;
        };
        if !*begun {
            if self.held.is_empty() {
                return Step::Wait;
            }
            if self.held.starts_with('\n') {
                self.held.remove(0);
            }
            if *text {
                out.push(ToolEvent::Arguments("\"".into()));
            }
            *begun = true;
        }
        let Some((end, after)) = value_end(&self.held, *told) else {
            let certain = self.held.len() - longest_beginning(VALUE_END, &self.held);
            if *text && certain > 0 && (*told || !PARAMETER_END.starts_with(&self.held)) {
                *told = true;
                let rest = self.held.split_off(certain);
                let piece = std::mem::replace(&mut self.held, rest);
                out.push(ToolEvent::Arguments(escaped(&piece)));
            }
            return Step::Wait;
        };
        let raw = &self.held[..end];
        if *text {
            out.push(ToolEvent::Arguments(format!("{}\"", escaped(raw))));
        } else {
            let Some(value) = convert(raw, schema.as_ref()) else { return Step::Malformed };
            out.push(ToolEvent::Arguments(value.to_string()));
        }
        self.held.drain(..after);
        self.state = State::Parameters;
        Step::Again
    }

    fn tail(&mut self) -> Progress {
        let text = self.held.trim_start();
        if let Some(rest) = text.strip_prefix(CLOSE) {
            return Progress::Done(rest.len());
        }
        if CLOSE.starts_with(text) { Progress::More } else { Progress::Malformed }
    }

    /// The name in a complete tag `<…=NAME>` at the front, which is taken away.
    fn tag(&mut self, open: &str) -> Option<String> {
        let text = self.held.trim_start().strip_prefix(open)?;
        let (name, rest) = text.split_once('>')?;
        let (name, rest) = (name.trim().to_owned(), rest.to_owned());
        self.held = rest;
        Some(name)
    }

    /// Whether the text may still become one of `tags`.
    fn wait_for(&self, tags: &[&str]) -> Step {
        let text = self.held.trim_start();
        let may =
            |tag: &&str| tag.starts_with(text) || (text.starts_with(*tag) && tag.ends_with('='));
        if tags.iter().any(may) { Step::Wait } else { Step::Malformed }
    }
}

enum Step {
    Again,
    Wait,
    Malformed,
}

/// Where a value ends, and where the text goes on behind its tag. `told` = a part of the value lies
/// before the text.
fn value_end(text: &str, told: bool) -> Option<(usize, usize)> {
    if let Some(end) = text.find(VALUE_END) {
        return Some((end, end + VALUE_END.len()));
    }
    if !told && text.starts_with(PARAMETER_END) {
        return Some((0, PARAMETER_END.len()));
    }
    // Without the line end behind it, the tag ends the value only where the call goes on with one.
    let end = text.find(PARAMETER_END)?;
    let after = end + PARAMETER_END.len();
    let rest = text[after..].trim_start();
    let goes_on = rest.starts_with(PARAMETER) || rest.starts_with(FUNCTION_END);
    let value = text[..end].strip_suffix('\n').map_or(end, str::len);
    goes_on.then_some((value, after))
}
