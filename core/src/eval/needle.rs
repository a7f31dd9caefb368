//! Facts hidden in a text, and the questions for them.

use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::tokenizer::{SpecialTokens, Tokenizer};

/// Places that the facts are about.
const PLACES: [&str; 16] = [
    "Paris", "London", "Berlin", "Madrid", "Rome", "Vienna", "Lisbon", "Oslo", "Dublin", "Prague",
    "Warsaw", "Athens", "Helsinki", "Cairo", "Tokyo", "Lima",
];
/// Tokens kept for fact, question and template.
const OVERHEAD: usize = 96;

/// A question whose answer stands in its prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct NeedleCase {
    /// Where the fact stands, from 0 = start to 1 = end of the text.
    pub depth: f64,
    /// Everything up to the answer.
    pub prompt: Vec<TokenId>,
    /// The number.
    pub answer: Vec<TokenId>,
}

/// Makes cases out of a text.
pub struct Needle<'a> {
    /// Tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Text that the facts are hidden in, repeated if it is short.
    pub text: &'a str,
    /// Tokens of a case.
    pub context: usize,
    /// Turns a user's message into the prompt, up to where the model's reply begins.
    pub render: &'a dyn Fn(&str) -> Result<Vec<TokenId>>,
}

impl Needle<'_> {
    /// A case with its fact at `depth`; `number` makes it differ from the others.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a context that is too short or a text without sentences; those of
    /// the tokenizer and of `render`.
    pub fn case(&self, depth: f64, number: usize) -> Result<NeedleCase> {
        let place = PLACES[number % PLACES.len()];
        // A multiplicative walk: numbers of five digits that look nothing like each other.
        let value = 10_000 + (number * 48_271 + 7_919) % 90_000;
        let (head, answer) = (format!("The secret number of {place} is"), format!(" {value}."));
        let mut sentences = self.sentences()?;
        let at = (depth * sentences.len() as f64).round() as usize;
        sentences
            .insert(at.min(sentences.len()), format!("{head}{}", answer.trim_end_matches('.')));
        let question = format!("What is the secret number of {place}?");
        let mut prompt = (self.render)(&format!("{}\n\n{question}", sentences.join(". ")))?;
        let (start, whole) = (self.encode(&head)?, self.encode(&format!("{head}{answer}"))?);
        let shared = start.iter().zip(&whole).take_while(|(a, b)| a == b).count();
        prompt.extend(&whole[..shared]);
        let case = NeedleCase { depth, prompt, answer: whole[shared..].to_vec() };
        let length = case.prompt.len() + case.answer.len();
        if length > self.context || case.answer.is_empty() {
            let reason = format!("{} tokens are too few for a case of {length}", self.context);
            return Err(Error::invalid("needle", reason));
        }
        Ok(case)
    }

    fn encode(&self, text: &str) -> Result<Vec<TokenId>> {
        self.tokenizer.encode(text, SpecialTokens::AsText)
    }

    /// Sentences for a text that leaves room for the rest.
    fn sentences(&self) -> Result<Vec<String>> {
        let room = self.context.saturating_sub(OVERHEAD);
        let once = self.encode(self.text)?;
        if once.is_empty() || room == 0 {
            let reason = "needs a text, and a context that is longer than a question";
            return Err(Error::invalid("needle", reason));
        }
        let tokens: Vec<TokenId> = once.iter().copied().cycle().take(room).collect();
        let text = self.tokenizer.decode(&tokens, true).replace('\u{fffd}', "");
        Ok(text.split(". ").map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::Checkpoint;
    use crate::weights::samples::fixture;

    #[test]
    fn facts_lie_where_they_should() {
        let embedded = fixture("../../server/assets/forge-tiny.ytf");
        let checkpoint = Checkpoint::open(embedded).unwrap();
        let tokenizer = Tokenizer::from_source(&checkpoint.tokenizer, None).unwrap();
        let render = |text: &str| tokenizer.encode(text, SpecialTokens::AsText);
        let text = "The river was low. Nobody came to the mill. The old dog slept in the sun. ";
        let needle = Needle { tokenizer: &tokenizer, text, context: 400, render: &render };
        let mut answers = Vec::new();
        for (number, depth) in [0.0, 0.5, 1.0].into_iter().enumerate() {
            let case = needle.case(depth, number).unwrap();
            let prompt = tokenizer.decode(&case.prompt, false);
            let answer = tokenizer.decode(&case.answer, false);
            let fact = format!("{answer:.6}");
            let at = prompt.find(&fact).unwrap() as f64 / prompt.len() as f64;
            assert!((at - depth).abs() < 0.2, "{depth}: {at}");
            assert!(prompt.ends_with(" is") && answer.ends_with('.'), "{prompt} {answer}");
            assert!(case.prompt.len() > 300 && case.prompt.len() + case.answer.len() <= 400);
            answers.push(answer);
        }
        answers.dedup();
        assert_eq!(answers.len(), 3);
        let short = Needle { context: 60, ..needle };
        assert!(short.case(0.5, 0).is_err());
    }
}
