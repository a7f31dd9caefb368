//! A conversation as text and tokens, so that each prompt continues the last where it can. Pure.

use crate::generate::{End, Reply};
use crate::reasoning;
use anyhow::Result;
use forge_core::TokenId;
use forge_core::chat::{ChatTemplate, Conversation, Message, RenderOptions, Role};
use forge_core::tokenizer::{SpecialTokens, Tokenizer};

/// A prompt of a turn.
pub(crate) struct Turn {
    /// Text of the whole prompt.
    pub(crate) text: String,
    /// Its tokens.
    pub(crate) tokens: Vec<TokenId>,
}

/// What was said so far.
pub(crate) struct Transcript {
    /// `None` = plain text.
    template: Option<ChatTemplate>,
    system: Option<String>,
    options: RenderOptions,
    conversation: Conversation,
    /// Prompt and answer of the last turn, as the engine has them.
    text: String,
    tokens: Vec<TokenId>,
}

impl Transcript {
    /// An empty conversation. `think` is the template's `enable_thinking`.
    pub(crate) fn new(
        template: Option<ChatTemplate>,
        system: Option<String>,
        think: Option<bool>,
    ) -> Self {
        let mut transcript = Self {
            template,
            system,
            options: RenderOptions { enable_thinking: think, ..RenderOptions::default() },
            conversation: Conversation::default(),
            text: String::new(),
            tokens: Vec::new(),
        };
        transcript.reset();
        transcript
    }

    /// Forgets everything but the system message.
    pub(crate) fn reset(&mut self) {
        let system = self.system.as_deref().map(|text| Message::new(Role::System, text));
        self.conversation.messages = system.into_iter().collect();
        self.text.clear();
        self.tokens.clear();
    }

    /// The prompt for an answer to `line`.
    ///
    /// # Errors
    /// Those of the template and the tokenizer.
    pub(crate) fn ask(&mut self, tokenizer: &Tokenizer, line: &str) -> Result<Turn> {
        self.conversation.messages.push(Message::new(Role::User, line));
        let turn = self.prompt(tokenizer, line);
        if turn.is_err() {
            self.take_back();
        }
        turn
    }

    fn prompt(&self, tokenizer: &Tokenizer, line: &str) -> Result<Turn> {
        let Some(template) = &self.template else {
            let added = if self.tokens.is_empty() { line.to_owned() } else { format!("\n{line}") };
            return Ok(Turn {
                text: format!("{}{added}", self.text),
                tokens: self.continued(tokenizer, &added)?,
            });
        };
        let rendered = template.render(&self.conversation, &self.options)?;
        let (text, tokens) = (rendered.text().into_owned(), rendered.encode(tokenizer)?);
        if tokens.starts_with(&self.tokens) {
            return Ok(Turn { text, tokens });
        }
        // An answer need not be the tokens that its text would become. Where the text goes on from
        // that of the last turn, the tokens do too; unless somebody wrote control tokens, which
        // only the whole rendering tells from the template's own.
        let plain = tokenizer.encode_prompt(&text, SpecialTokens::Parse)? == tokens;
        match text.strip_prefix(&self.text) {
            Some(added) if plain => {
                let tokens = self.continued(tokenizer, added)?;
                Ok(Turn { text, tokens })
            }
            _ => Ok(Turn { text, tokens }),
        }
    }

    /// The tokens of the last turn and those of `added`.
    fn continued(&self, tokenizer: &Tokenizer, added: &str) -> Result<Vec<TokenId>> {
        if self.tokens.is_empty() {
            return Ok(tokenizer.encode_prompt(added, SpecialTokens::Parse)?);
        }
        let added = tokenizer.encode(added, SpecialTokens::Parse)?;
        Ok(self.tokens.iter().copied().chain(added).collect())
    }

    /// Forgets what was asked last.
    pub(crate) fn take_back(&mut self) {
        self.conversation.messages.pop();
    }

    /// Notes the answer to `turn`.
    pub(crate) fn answered(&mut self, tokenizer: &Tokenizer, turn: Turn, reply: &Reply) {
        let (reasoning, answer) = reasoning::split(&turn.text, &reply.text);
        let mut message = Message::new(Role::Assistant, answer);
        message.reasoning_content = reasoning;
        self.conversation.messages.push(message);
        // Cut short by a stop string or Ctrl-C, the tokens are not the text that was shown.
        let whole = reply.end != End::Interrupted && !reply.cut;
        self.text = turn.text;
        self.tokens = turn.tokens;
        if whole {
            self.text.push_str(&tokenizer.decode(&reply.tokens, false));
            self.tokens.extend(&reply.tokens);
        } else {
            self.text.push_str(&reply.text);
            if self.template.is_none() {
                let shown = tokenizer.encode(&reply.text, SpecialTokens::AsText);
                self.tokens.extend(shown.unwrap_or_default());
            } else {
                self.text.clear();
                self.tokens.clear();
            }
        }
    }
}
