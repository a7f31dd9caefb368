//! Messages put together from items that are smaller than messages: an assistant's reasoning, text
//! and calls are one turn in a template, and several items in the APIs that are not Chat.

use forge_core::chat::{Content, FunctionCall, Message, Role, ToolCall};
use serde_json::{Map, Value};

/// Puts messages together.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    messages: Vec<Message>,
    /// The assistant's turn that may go on.
    open: Option<Message>,
}

impl Turns {
    /// A message of its own.
    pub(crate) fn message(&mut self, role: Role, text: impl Into<String>) {
        self.close();
        self.messages.push(Message::new(role, text.into()));
    }

    /// What a tool answered.
    pub(crate) fn tool_result(&mut self, call_id: &str, text: String) {
        self.close();
        let mut message = Message::new(Role::Tool, text);
        message.tool_call_id = Some(call_id.to_owned());
        self.messages.push(message);
    }

    /// Reasoning of the assistant; it opens a turn unless it follows other reasoning.
    pub(crate) fn reasoning(&mut self, text: &str) {
        let said = |open: &Message| open.content.is_some() || !open.tool_calls.is_empty();
        if self.open.as_ref().is_some_and(said) {
            self.close();
        }
        let open = self.turn();
        match &mut open.reasoning_content {
            Some(before) => {
                before.push_str("\n\n");
                before.push_str(text);
            }
            None => open.reasoning_content = Some(text.to_owned()),
        }
    }

    /// Text of the assistant; it goes on with the text before, but not with calls.
    pub(crate) fn text(&mut self, text: &str) {
        if self.open.as_ref().is_some_and(|open| !open.tool_calls.is_empty()) {
            self.close();
        }
        match &mut self.turn().content {
            Some(Content::Text(before)) => before.push_str(text),
            content => *content = Some(text.into()),
        }
    }

    /// A call by the assistant.
    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: Map<String, Value>) {
        self.turn().tool_calls.push(ToolCall {
            id: Some(id.to_owned()),
            kind: "function".to_owned(),
            function: FunctionCall { name: name.to_owned(), arguments: arguments.into() },
        });
    }

    /// True if the assistant's turn has text.
    pub(crate) fn has_text(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.content.is_some())
    }

    /// Ends the assistant's turn.
    pub(crate) fn close(&mut self) {
        self.messages.extend(self.open.take());
    }

    /// All messages.
    pub(crate) fn finish(mut self) -> Vec<Message> {
        self.close();
        self.messages
    }

    fn turn(&mut self) -> &mut Message {
        self.open.get_or_insert_with(|| Message {
            content: None,
            ..Message::new(Role::Assistant, String::new())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_reasoning_then_text_then_calls() {
        let mut turns = Turns::default();
        turns.message(Role::User, "q");
        turns.reasoning("a");
        turns.reasoning("b");
        turns.text("c");
        turns.text("d");
        turns.call("1", "f", Map::new());
        turns.call("2", "g", Map::new());
        turns.tool_result("1", "x".into());
        turns.reasoning("e");
        turns.call("3", "f", Map::new());
        turns.text("after a call");
        let messages = turns.finish();
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "assistant", "assistant"]);
        assert_eq!(messages[1].reasoning_content.as_deref(), Some("a\n\nb"));
        assert_eq!(messages[1].content, Some("cd".into()));
        assert_eq!(messages[1].tool_calls.len(), 2);
        assert_eq!(messages[2].tool_call_id.as_deref(), Some("1"));
        assert_eq!((&messages[3].content, messages[3].tool_calls.len()), (&None, 1));
        assert_eq!(messages[4].content, Some("after a call".into()));
    }
}
