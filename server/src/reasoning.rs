//! Tells a model's reasoning (`<think>` … `</think>`) from its answer while both arrive. Pure.

/// Opens the reasoning.
const OPEN: &str = "<think>";
/// Ends the reasoning.
const CLOSE: &str = "</think>";

/// Where a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but white space so far: reasoning may begin.
    Start,
    /// In the reasoning.
    Reasoning,
    /// In the answer; `<think>` is text here.
    Answer,
}

/// Splits a reply. No character is lost or moved: the pieces joined are the reply.
#[derive(Debug)]
pub(crate) struct ReasoningSplitter {
    place: Place,
    held: String,
}

impl ReasoningSplitter {
    /// A splitter for the reply to `prompt`, which may already have opened the reasoning.
    pub(crate) fn after(prompt: &str) -> Self {
        let open = prompt.trim_end().ends_with(OPEN);
        Self { place: if open { Place::Reasoning } else { Place::Start }, held: String::new() }
    }

    /// Takes in a piece and returns those that are certain, each with whether it is reasoning.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<(String, bool)> {
        self.held.push_str(piece);
        let mut out = Vec::new();
        if self.place == Place::Start {
            let text = self.held.trim_start();
            if text.starts_with(OPEN) {
                self.place = Place::Reasoning;
            } else if !OPEN.starts_with(text) {
                self.place = Place::Answer;
            }
        }
        if self.place == Place::Reasoning {
            let end = self.held.find(CLOSE).map(|start| start + CLOSE.len());
            let certain = end.unwrap_or_else(|| self.held.len() - beginning_of_close(&self.held));
            out.extend(self.take(certain, true));
            if end.is_some() {
                self.place = Place::Answer;
            }
        }
        if self.place == Place::Answer {
            out.extend(self.take(self.held.len(), false));
        }
        out
    }

    /// Returns what was held back when the reply ends.
    pub(crate) fn finish(&mut self) -> Option<(String, bool)> {
        self.take(self.held.len(), self.place == Place::Reasoning)
    }

    fn take(&mut self, bytes: usize, reasoning: bool) -> Option<(String, bool)> {
        let rest = self.held.split_off(bytes);
        let text = std::mem::replace(&mut self.held, rest);
        (!text.is_empty()).then_some((text, reasoning))
    }
}

/// Bytes at the end of `text` that may begin the closing tag.
fn beginning_of_close(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|&bytes| text.ends_with(&CLOSE[..bytes])).unwrap_or(0)
}

/// Reasoning and answer of a whole reply to `prompt`.
pub(crate) fn split(prompt: &str, reply: &str) -> (Option<String>, String) {
    let mut splitter = ReasoningSplitter::after(prompt);
    let mut pieces = splitter.push(reply);
    pieces.extend(splitter.finish());
    let join = |wanted: bool| -> String {
        pieces
            .iter()
            .filter(|(_, reasoning)| *reasoning == wanted)
            .map(|(t, _)| t.as_str())
            .collect()
    };
    let reasoning = join(true);
    if reasoning.is_empty() {
        return (None, reply.to_owned());
    }
    let inner = reasoning.trim();
    let inner = inner.strip_prefix(OPEN).unwrap_or(inner);
    let inner = inner.strip_suffix(CLOSE).unwrap_or(inner);
    (Some(inner.trim().to_owned()), join(false).trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of a reply that arrives character by character, neighbours of a kind joined.
    fn by_character(prompt: &str, reply: &str) -> Vec<(String, bool)> {
        let mut splitter = ReasoningSplitter::after(prompt);
        let mut pieces: Vec<(String, bool)> = Vec::new();
        let mut all: Vec<_> = reply.chars().flat_map(|c| splitter.push(&c.to_string())).collect();
        all.extend(splitter.finish());
        for (text, reasoning) in all {
            match pieces.last_mut() {
                Some((last, kind)) if *kind == reasoning => last.push_str(&text),
                _ => pieces.push((text, reasoning)),
            }
        }
        pieces
    }

    #[test]
    fn reasoning_ends_where_its_tag_ends() {
        let reply = "\n<think>\na < b\n</think>\n\nYes, <think> is a tag.";
        let expected = vec![
            ("\n<think>\na < b\n</think>".into(), true),
            ("\n\nYes, <think> is a tag.".into(), false),
        ];
        assert_eq!(by_character("assistant\n", reply), expected);
        let (reasoning, answer) = split("assistant\n", reply);
        assert_eq!(
            (reasoning.as_deref(), answer.as_str()),
            (Some("a < b"), "Yes, <think> is a tag.")
        );
    }

    #[test]
    fn the_prompt_may_have_opened_it() {
        let expected = vec![("1 + 1</think>".into(), true), ("2".into(), false)];
        assert_eq!(by_character("assistant\n<think>\n", "1 + 1</think>2"), expected);
        assert_eq!(split("<think>\n", "cut off").0.as_deref(), Some("cut off"));
        // An empty block in the prompt is closed already.
        assert_eq!(split("<think>\n\n</think>\n\n", "4"), (None, "4".to_owned()));
    }

    #[test]
    fn plain_replies_are_answers() {
        assert_eq!(by_character("", "<b>bold</b>"), vec![("<b>bold</b>".into(), false)]);
        assert_eq!(by_character("", "<thi"), vec![("<thi".into(), false)]);
    }
}
