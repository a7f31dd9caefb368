//! Marks: characters that no conversation contains, for finding places again in rendered text.

use crate::error::{Error, Result};
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

/// Unicode's noncharacters for internal use.
const NONCHARACTERS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Three characters that occur nowhere in a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    /// Breaks up control tokens that people or tools wrote.
    pub(super) guard: char,
    /// Stands for a system message that the template refused.
    pub(super) late: char,
    /// Ends a message that is to be continued.
    pub(super) end: char,
}

impl Marks {
    /// Marks that none of `values` contains.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a conversation uses nearly all of the noncharacters.
    pub(super) fn unused_in<'a>(values: impl Iterator<Item = &'a Value>) -> Result<Self> {
        let mut used = 0u32;
        for value in values {
            visit(value, &mut |text| {
                for c in text.chars().filter(|c| NONCHARACTERS.contains(c)) {
                    used |= 1 << (u32::from(c) & 31);
                }
            });
        }
        let mut free = NONCHARACTERS.filter(|&c| used & (1 << (u32::from(c) & 31)) == 0);
        match (free.next(), free.next(), free.next()) {
            (Some(guard), Some(late), Some(end)) => Ok(Self { guard, late, end }),
            _ => Err(Error::invalid("messages", "too many different Unicode noncharacters")),
        }
    }
}

/// Calls `look` with every string and key inside `value`.
fn visit(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| visit(item, look)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            look(key);
            visit(value, look);
        }),
        _ => {}
    }
}

/// Finds control tokens in what people and tools wrote.
#[derive(Debug)]
pub(super) struct ControlTokens {
    automaton: Option<AhoCorasick>,
}

impl ControlTokens {
    /// Prepares the texts of the control tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they cannot be compiled into an automaton.
    pub(super) fn new(texts: &[String]) -> Result<Self> {
        let texts: Vec<&String> = texts.iter().filter(|text| !text.is_empty()).collect();
        if texts.is_empty() {
            return Ok(Self { automaton: None });
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::invalid("control tokens", e.to_string()))?;
        Ok(Self { automaton: Some(automaton) })
    }

    /// Puts `guard` after each character of every control token inside `value`, keys included;
    /// says whether there was one.
    pub(super) fn guard(&self, value: &mut Value, guard: char) -> bool {
        let Some(automaton) = &self.automaton else { return false };
        match value {
            Value::String(text) => match guarded(automaton, text, guard) {
                Some(broken_up) => {
                    *text = broken_up;
                    true
                }
                None => false,
            },
            // No short circuit: every item has to be guarded.
            Value::Array(items) => {
                items.iter_mut().fold(false, |any, item| self.guard(item, guard) | any)
            }
            Value::Object(fields) => self.guard_fields(automaton, fields, guard),
            _ => false,
        }
    }

    fn guard_fields(
        &self,
        automaton: &AhoCorasick,
        fields: &mut Map<String, Value>,
        guard: char,
    ) -> bool {
        let mut any = fields.values_mut().fold(false, |any, value| self.guard(value, guard) | any);
        if fields.keys().any(|key| automaton.is_match(key)) {
            let renamed = std::mem::take(fields).into_iter();
            *fields = renamed
                .map(|(key, value)| (guarded(automaton, &key, guard).unwrap_or(key), value))
                .collect();
            any = true;
        }
        any
    }
}

fn guarded(automaton: &AhoCorasick, text: &str, guard: char) -> Option<String> {
    if !automaton.is_match(text) {
        return None;
    }
    let mut broken_up = String::with_capacity(text.len() + 64);
    let mut done = 0;
    for found in automaton.find_iter(text) {
        broken_up.push_str(&text[done..found.start()]);
        for c in text[found.range()].chars() {
            broken_up.push(c);
            broken_up.push(guard);
        }
        done = found.end();
    }
    broken_up.push_str(&text[done..]);
    Some(broken_up)
}
