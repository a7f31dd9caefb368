//! System messages after the first, which some templates refuse and others drop.

use super::template::{ChatTemplate, RenderOptions};
use crate::error::Result;
use serde_json::{Value, json};

/// Contents of the probes; no template can contain them by chance.
const PROBE_SYSTEM: &str = "forge-probe-of-a-system-message";
const PROBE_USER: &str = "forge-probe-of-a-user-message";

/// Renders `messages`; see [`ChatTemplate::render`] for what becomes of late system messages.
/// `mark` is a character that the messages do not contain.
pub(super) fn render(
    template: &ChatTemplate,
    messages: &[Value],
    tools: Option<&Value>,
    options: &RenderOptions,
    mark: char,
) -> Result<String> {
    let plain = template.render_values(messages, tools, options);
    let late: Vec<&str> = messages.iter().skip(1).filter_map(system_text).collect();
    let complete = |text: &String| late.iter().all(|late| text.contains(late.trim()));
    if late.is_empty() || plain.as_ref().is_ok_and(complete) {
        return plain;
    }
    if let Some(block) = SystemBlock::of(template, options)
        && let Ok(marked) = template.render_marked(messages, tools, options, Some(mark))
        && marked.matches(mark).count() == late.len()
    {
        return Ok(block.fill(&marked, mark, &late));
    }
    match (template.render_values(&fold(messages), tools, options), plain) {
        // The refusal of what was asked says more than that of what was tried instead.
        (Err(_), Err(refusal)) => Err(refusal),
        (folded, _) => folded,
    }
}

/// Content of a system message.
fn system_text(message: &Value) -> Option<&str> {
    let system = message.get("role").is_some_and(|role| role == "system" || role == "developer");
    if system { message.get("content")?.as_str() } else { None }
}

/// What a template puts around the content of a system message.
struct SystemBlock {
    before: String,
    after: String,
}

impl SystemBlock {
    /// Finds it out by rendering a user message with and without a system message before it.
    fn of(template: &ChatTemplate, options: &RenderOptions) -> Option<Self> {
        let options = RenderOptions { add_generation_prompt: false, ..options.clone() };
        let user = json!({"role": "user", "content": PROBE_USER});
        let system = json!({"role": "system", "content": PROBE_SYSTEM});
        let without = template.render_values(std::slice::from_ref(&user), None, &options).ok()?;
        let with = template.render_values(&[system, user], None, &options).ok()?;
        let (before, rest) = with.split_once(PROBE_SYSTEM)?;
        // What both begin with, BOS, belongs to no message.
        let bos = template.bos_of(&without);
        let after = rest.strip_suffix(without.strip_prefix(bos)?)?;
        Some(Self { before: before.strip_prefix(bos)?.to_owned(), after: after.to_owned() })
    }

    /// Puts the blocks of `late` in the places of the marks.
    fn fill(&self, marked: &str, mark: char, late: &[&str]) -> String {
        let mut text = String::with_capacity(marked.len() + 64);
        let mut parts = marked.split(mark);
        text.extend(parts.next());
        for (part, content) in parts.zip(late) {
            text.extend([self.before.as_str(), content.trim(), self.after.as_str(), part]);
        }
        text
    }
}

/// Moves the text of late system messages into their neighbours.
fn fold(messages: &[Value]) -> Vec<Value> {
    let mut folded: Vec<Value> = Vec::with_capacity(messages.len());
    let mut waiting: Option<String> = None;
    for (index, message) in messages.iter().enumerate() {
        if let (Some(text), true) = (system_text(message), index > 0) {
            waiting = Some(match waiting.take() {
                Some(before) => format!("{before}\n\n{text}"),
                None => text.to_owned(),
            });
            continue;
        }
        let mut message = message.clone();
        if let Some(text) = waiting.take() {
            match content_of(&mut message, &["user"]) {
                Some(content) => *content = format!("{text}\n\n{content}"),
                None => append(&mut folded, text),
            }
        }
        folded.push(message);
    }
    if let Some(text) = waiting {
        append(&mut folded, text);
    }
    folded
}

/// Adds `text` to the last message if a user or tool speaks there, else as a user message.
fn append(messages: &mut Vec<Value>, text: String) {
    match messages.last_mut().and_then(|last| content_of(last, &["user", "tool"])) {
        Some(content) => *content = format!("{content}\n\n{text}"),
        None => messages.push(json!({"role": "user", "content": text})),
    }
}

fn content_of<'a>(message: &'a mut Value, roles: &[&str]) -> Option<&'a mut String> {
    let role = message.get("role")?.as_str()?;
    if !roles.contains(&role) {
        return None;
    }
    match message.get_mut("content")? {
        Value::String(text) => Some(text),
        _ => None,
    }
}
