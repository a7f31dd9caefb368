//! Stop strings over a stream of text. Pure.

use anyhow::{Result, bail};

/// Finds the first stop string in text that arrives in pieces. Text that may be the beginning of
/// one is held back, so no part of a stop string is ever shown.
#[derive(Clone, Debug)]
pub(crate) struct StopStrings {
    stops: Vec<String>,
    held: String,
    found: Option<usize>,
}

impl StopStrings {
    /// Looks for any of `stops`.
    ///
    /// # Errors
    /// If one of them is empty.
    pub(crate) fn new(stops: &[String]) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            bail!("stop: a stop string is empty");
        }
        Ok(Self { stops: stops.to_vec(), held: String::new(), found: None })
    }

    /// True once a stop string has been completed.
    pub(crate) fn found(&self) -> bool {
        self.found.is_some()
    }

    /// The stop string that has been completed.
    pub(crate) fn matched(&self) -> Option<&str> {
        self.stops.get(self.found?).map(String::as_str)
    }

    /// Takes in a piece and returns the text that is safe to show: everything before the stop
    /// string that is completed first, or all that can no longer belong to one.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        if self.found() {
            return String::new();
        }
        self.held.push_str(piece);
        let matches = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start, index))
        });
        // The one that is complete first, however the text was cut into pieces.
        if let Some((_, start, index)) = matches.min() {
            self.found = Some(index);
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let safe = self.held.len() - self.longest_beginning();
        let rest = self.held.split_off(safe);
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns what was held back when the text ends without a stop string.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes of the longest end of the held text that begins a stop string.
    fn longest_beginning(&self) -> usize {
        let longest = |stop: &String| {
            let most = stop.len().min(self.held.len());
            (1..=most)
                .rev()
                .find(|&bytes| {
                    let end = self.held.len() - bytes;
                    stop.is_char_boundary(bytes)
                        && self.held.as_bytes().get(end..) == stop.as_bytes().get(..bytes)
                })
                .unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stops(list: &[&str]) -> Vec<String> {
        list.iter().map(|&stop| stop.to_owned()).collect()
    }

    /// Shown text, and whether a stop string ended it.
    fn run(list: &[String], pieces: &[&str]) -> (String, bool) {
        let mut stop = StopStrings::new(list).unwrap();
        let mut shown: String = pieces.iter().map(|piece| stop.push(piece)).collect();
        if !stop.found() {
            shown += &stop.finish();
        }
        (shown, stop.found())
    }

    #[test]
    fn a_stop_string_may_span_pieces() {
        let list = stops(&["\nUser:", "END"]);
        assert_eq!(run(&list, &["Hello.", "\nUs", "er", ": hi"]), ("Hello.".into(), true));
        assert_eq!(run(&list, &["Hello.\nUs", "e it"]), ("Hello.\nUse it".into(), false));
        assert_eq!(run(&list, &["aENEND", "b"]), ("aEN".into(), true));
        assert_eq!(run(&list, &["ends with E", "N"]), ("ends with EN".into(), false));
    }

    #[test]
    fn text_is_held_back_no_longer_than_needed() {
        let mut stop = StopStrings::new(&stops(&["abab"])).unwrap();
        assert_eq!(stop.push("xab"), "x");
        assert_eq!(stop.push("a"), "");
        assert_eq!(stop.push("c"), "abac");
        assert_eq!(stop.push("é"), "é");
    }

    #[test]
    fn the_stop_string_that_is_complete_first_wins() {
        let list = stops(&["xabc", "ab"]);
        assert_eq!(run(&list, &["xabc"]), ("x".into(), true));
        assert_eq!(run(&list, &["x", "a", "b", "c"]), ("x".into(), true));
    }

    #[test]
    fn the_completed_stop_string_is_known() {
        let mut stop = StopStrings::new(&stops(&["END", "STOP"])).unwrap();
        stop.push("a ST");
        assert_eq!(stop.matched(), None);
        stop.push("OP");
        assert_eq!(stop.matched(), Some("STOP"));
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        assert!(StopStrings::new(&stops(&[""])).is_err());
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            text in "[abé]{0,24}",
            list in prop::collection::vec("[abé]{1,4}", 0..4),
            cuts in prop::collection::vec(any::<bool>(), 24),
        ) {
            let mut pieces = vec![String::new()];
            for (character, cut) in text.chars().zip(&cuts) {
                if *cut {
                    pieces.push(String::new());
                }
                if let Some(last) = pieces.last_mut() {
                    last.push(character);
                }
            }
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let whole = run(&list, &[&text]);
            prop_assert_eq!(&run(&list, &pieces), &whole);
            prop_assert!(text.starts_with(&whole.0));
            prop_assert!(list.iter().all(|stop| !whole.0.contains(stop.as_str())));
        }
    }
}
