//! Calls as one JSON object with `name` and `arguments`.

use super::{CLOSE, Progress, ToolEvent, ToolSet, longest_beginning};
use serde_json::Value;

/// What a guarded call has between its name and its arguments.
const ARGUMENTS: &str = "\"arguments\": ";
/// Ends a guarded call. No JSON string holds a line end, so it is found nowhere else.
const END: &str = "}\n</tool_call>";

/// A guarded call that is being read.
#[derive(Debug)]
pub(super) struct HermesCall {
    named: bool,
    held: String,
}

impl HermesCall {
    pub(super) fn new() -> Self {
        Self { named: false, held: String::new() }
    }

    /// Takes in more of the text behind `<tool_call>`.
    pub(super) fn push(
        &mut self,
        piece: &str,
        tools: &ToolSet,
        out: &mut Vec<ToolEvent>,
    ) -> Progress {
        self.held.push_str(piece);
        if !self.named {
            let Some(start) = self.held.find(ARGUMENTS) else { return Progress::More };
            let head = format!("{}{ARGUMENTS}null}}", &self.held[..start]);
            let head: Value = serde_json::from_str(&head).unwrap_or_default();
            let Some(name) = head["name"].as_str().filter(|name| tools.get(name).is_some()) else {
                return Progress::Malformed;
            };
            out.push(ToolEvent::Start(name.to_owned()));
            self.held.drain(..start + ARGUMENTS.len());
            self.named = true;
        }
        if let Some(end) = self.held.find(END) {
            out.push(ToolEvent::Arguments(self.held[..end].to_owned()));
            return Progress::Done(self.held.len() - end - END.len());
        }
        let certain = self.held.len() - longest_beginning(END, &self.held);
        if certain > 0 {
            let rest = self.held.split_off(certain);
            out.push(ToolEvent::Arguments(std::mem::replace(&mut self.held, rest)));
        }
        Progress::More
    }
}

/// Reads a whole call, the text between the tags.
pub(super) fn whole(body: &str, tools: &ToolSet, out: &mut Vec<ToolEvent>) -> Progress {
    debug_assert!(!body.contains(CLOSE));
    let Ok(call) = serde_json::from_str::<Value>(body.trim()) else { return Progress::Malformed };
    let Some(name) = call["name"].as_str().filter(|name| tools.get(name).is_some()) else {
        return Progress::Malformed;
    };
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        Some(Value::Object(arguments)) => Value::Object(arguments.clone()),
        // Some models quote the object.
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(arguments @ Value::Object(_)) => arguments,
            _ => return Progress::Malformed,
        },
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(_) => return Progress::Malformed,
    };
    out.push(ToolEvent::Start(name.to_owned()));
    out.push(ToolEvent::Arguments(arguments.to_string()));
    Progress::Done(0)
}
