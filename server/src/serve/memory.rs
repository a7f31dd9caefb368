//! Remembers the reasoning of replies. Most clients send an answer back without it; the prompt then
//! leaves what the cache holds at the first such answer, and a model in a chain of tool calls loses
//! its thread. What is known is put back before the prompt is rendered.

use super::generation::Reply;
use forge_core::chat::{Conversation, Message, Role};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::Xxh3;

/// Most bytes of reasoning; the oldest goes first.
const LIMIT_BYTES: usize = 32 << 20;

/// A conversation up to some message, without its reasoning. Only who sends the whole conversation
/// back meets what was remembered under it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Thread(u128);

impl Thread {
    /// The conversation with one more message.
    fn then(self, role: &str, content: &str, calls: &[(String, String)]) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&self.0.to_le_bytes());
        let mut part = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(role);
        part(content);
        for (name, arguments) in calls {
            part(name);
            part(arguments);
        }
        Self(hash.digest128())
    }

    fn then_message(self, message: &Message) -> Self {
        let content = message.content.as_ref().and_then(|content| content.to_text("content").ok());
        let calls: Vec<(String, String)> = message
            .tool_calls
            .iter()
            .map(|call| (call.function.name.clone(), normal(&call.function.arguments)))
            .collect();
        self.then(message.role.as_str(), &content.unwrap_or_default(), &calls)
    }

    /// The conversation with this reply.
    pub(crate) fn then_reply(self, reply: &Reply) -> Self {
        let calls: Vec<(String, String)> = reply
            .tool_calls
            .iter()
            .map(|call| (call.name.clone(), normal(&Value::from(call.arguments.as_str()))))
            .collect();
        self.then(Role::Assistant.as_str(), &reply.text, &calls)
    }
}

/// Arguments in one spelling, whether they are an object or the text of one.
fn normal(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => serde_json::from_str::<Value>(text)
            .map_or_else(|_| text.clone(), |value| value.to_string()),
        value => value.to_string(),
    }
}

#[derive(Default)]
struct Store {
    known: HashMap<Thread, String>,
    order: VecDeque<Thread>,
    bytes: usize,
}

/// The reasoning of the latest replies.
#[derive(Default)]
pub(crate) struct ReasoningMemory(Mutex<Store>);

impl ReasoningMemory {
    /// Puts what is known back into the conversation's answers that come without reasoning;
    /// returns the conversation's identity.
    pub(crate) fn restore(&self, conversation: &mut Conversation) -> Thread {
        let mut thread = Thread::default();
        for message in &mut conversation.messages {
            thread = thread.then_message(message);
            if message.role == Role::Assistant && message.reasoning_content.is_none() {
                message.reasoning_content = self.lock().known.get(&thread).cloned();
            }
        }
        thread
    }

    /// Remembers the reasoning of a reply to the conversation `thread`.
    pub(crate) fn remember(&self, thread: Thread, reply: &Reply) {
        if reply.reasoning.is_empty() {
            return;
        }
        let key = thread.then_reply(reply);
        let mut store = self.lock();
        if let Some(old) = store.known.insert(key, reply.reasoning.clone()) {
            store.bytes -= old.len();
        } else {
            store.order.push_back(key);
        }
        store.bytes += reply.reasoning.len();
        while store.bytes > LIMIT_BYTES {
            let Some(oldest) = store.order.pop_front() else { break };
            let freed = store.known.remove(&oldest).map_or(0, |reasoning| reasoning.len());
            store.bytes -= freed;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::generation::ReplyCall;
    use serde_json::json;

    fn conversation(value: Value) -> Conversation {
        serde_json::from_value(json!({"messages": value})).unwrap()
    }

    #[test]
    fn reasoning_comes_back_to_its_own_conversation_only() {
        let memory = ReasoningMemory::default();
        let call = ReplyCall { id: "1".into(), name: "f".into(), arguments: "{\"a\": 1}".into() };
        let reply = Reply { reasoning: "hm".into(), tool_calls: vec![call], ..Reply::default() };
        let asked = json!({"role": "user", "content": "x"});
        let thread = memory.restore(&mut conversation(json!([asked])));
        memory.remember(thread, &reply);
        let answered = |arguments: Value, extra: Value| {
            let mut message = json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
            ]});
            message.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            message
        };
        let recalled = |messages: Value| {
            let mut conversation = conversation(messages);
            memory.restore(&mut conversation);
            conversation.messages[1].reasoning_content.clone()
        };
        let result = json!({"role": "tool", "content": "y"});
        for arguments in [json!("{\"a\":1}"), json!({"a": 1})] {
            let messages = json!([asked, answered(arguments, json!({})), result]);
            assert_eq!(recalled(messages).as_deref(), Some("hm"));
        }
        let own = answered(json!({"a": 1}), json!({"reasoning_content": "mine"}));
        assert_eq!(recalled(json!([asked, own])).as_deref(), Some("mine"));
        let other = json!({"role": "user", "content": "z"});
        assert_eq!(recalled(json!([other, answered(json!({"a": 1}), json!({}))])), None);
        assert_eq!(recalled(json!([asked, answered(json!({"a": 2}), json!({}))])), None);
    }

    #[test]
    fn the_oldest_goes_first() {
        let memory = ReasoningMemory::default();
        let reply = |text: &str| Reply {
            reasoning: "r".repeat(LIMIT_BYTES / 2),
            text: text.into(),
            ..Reply::default()
        };
        for text in ["a", "b", "b", "c"] {
            memory.remember(Thread::default(), &reply(text));
        }
        let known = |text: &str| {
            let key = Thread::default().then_reply(&reply(text));
            memory.lock().known.contains_key(&key)
        };
        assert_eq!((known("a"), known("b"), known("c")), (false, true, true));
    }
}
