//! Reasoning and answer of a reply as the APIs carry them: without tags, and without the white
//! space that a template puts around them. Pure.

use crate::reasoning::ReasoningSplitter;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Where the next text belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing but white space so far.
    Start,
    /// In the reasoning, nothing but line ends so far.
    ReasoningStart,
    /// In the reasoning.
    Reasoning,
    /// After the reasoning, nothing but line ends so far.
    AnswerStart,
    /// In the answer.
    Answer,
    /// Nothing is looked for.
    Plain,
}

/// Splits a reply while it arrives.
#[derive(Debug)]
pub(crate) struct ThinkingSplitter {
    splitter: ReasoningSplitter,
    place: Place,
    /// Line ends of the reasoning that may be its last.
    held: String,
}

impl ThinkingSplitter {
    /// A splitter for the reply to `prompt`, which may already have opened the reasoning.
    pub(crate) fn after(prompt: &str) -> Self {
        let open = prompt.trim_end().ends_with(OPEN);
        let place = if open { Place::ReasoningStart } else { Place::Start };
        Self { splitter: ReasoningSplitter::after(prompt), place, held: String::new() }
    }

    /// A splitter for a text without a template, in which everything is answer.
    pub(crate) fn off() -> Self {
        let splitter = ReasoningSplitter::after("");
        Self { splitter, place: Place::Plain, held: String::new() }
    }

    /// True while the reply reasons.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self.place, Place::ReasoningStart | Place::Reasoning)
    }

    /// Takes in a piece and returns those that are certain, each with whether it is reasoning.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<(String, bool)> {
        if self.place == Place::Plain {
            return if piece.is_empty() { Vec::new() } else { vec![(piece.to_owned(), false)] };
        }
        let mut out = Vec::new();
        for (text, reasoning) in self.splitter.push(piece) {
            self.sort(&text, reasoning, &mut out);
        }
        out
    }

    /// Returns what was held back when the reply ends.
    pub(crate) fn finish(&mut self) -> Vec<(String, bool)> {
        let mut out = Vec::new();
        if let Some((text, reasoning)) = self.splitter.finish() {
            self.sort(&text, reasoning, &mut out);
        }
        out
    }

    fn sort(&mut self, text: &str, reasoning: bool, out: &mut Vec<(String, bool)>) {
        if reasoning {
            let mut text = text;
            if self.place == Place::Start {
                text = text.trim_start().strip_prefix(OPEN).unwrap_or(text);
                self.place = Place::ReasoningStart;
            }
            let inner = text.strip_suffix(CLOSE);
            self.reason(inner.unwrap_or(text), out);
            if inner.is_some() {
                self.held.clear();
                self.place = Place::AnswerStart;
            }
            return;
        }
        let text =
            if self.place == Place::AnswerStart { text.trim_start_matches('\n') } else { text };
        if !text.is_empty() {
            self.place = Place::Answer;
            out.push((text.to_owned(), false));
        }
    }

    fn reason(&mut self, text: &str, out: &mut Vec<(String, bool)>) {
        let mut text = text;
        if self.place == Place::ReasoningStart {
            text = text.trim_start_matches('\n');
            if text.is_empty() {
                return;
            }
            self.place = Place::Reasoning;
        }
        let certain = text.trim_end_matches('\n');
        if !certain.is_empty() {
            let mut piece = std::mem::take(&mut self.held);
            piece.push_str(certain);
            out.push((piece, true));
        }
        self.held.push_str(&text[certain.len()..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_character(prompt: &str, reply: &str) -> (String, String) {
        let mut splitter = ThinkingSplitter::after(prompt);
        let mut all: Vec<_> = reply.chars().flat_map(|c| splitter.push(&c.to_string())).collect();
        all.extend(splitter.finish());
        let join =
            |wanted| all.iter().filter(|(_, r)| *r == wanted).map(|(t, _)| t.as_str()).collect();
        (join(true), join(false))
    }

    #[test]
    fn tags_and_layout_are_left_out_and_nothing_else() {
        let both = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let open = "assistant\n<think>\n";
        assert_eq!(by_character(open, "a\n\nb\n</think>\n\n  c\n"), both("a\n\nb", "  c\n"));
        assert_eq!(by_character("", "\n<think>\na\n</think>b</think>"), both("a", "b</think>"));
        assert_eq!(by_character(open, "cut off\n"), both("cut off", ""));
        assert_eq!(by_character(open, "</think>\n\nx"), both("", "x"));
        assert_eq!(by_character(open, "a < b </thin"), both("a < b </thin", ""));
        assert_eq!(by_character("<think>\n\n</think>\n\n", "\nplain"), both("", "\nplain"));
    }

    #[test]
    fn the_place_is_known_as_it_changes() {
        let mut splitter = ThinkingSplitter::after("<think>\n");
        assert!(splitter.is_reasoning());
        splitter.push("a</think>");
        assert!(!splitter.is_reasoning());
    }

    #[test]
    fn without_a_template_tags_are_text() {
        let mut off = ThinkingSplitter::off();
        assert_eq!(off.push("<think>\n"), [("<think>\n".to_owned(), false)]);
        assert!(off.finish().is_empty() && !off.is_reasoning());
    }
}
