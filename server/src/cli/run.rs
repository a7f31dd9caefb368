//! `forge run`: one prompt, one reply.

use super::options::{EngineFlags, SamplingFlags, Switch};
use crate::backend::{BackendVisitor, with_backend};
use crate::generate::{End, Reply, generate};
use crate::interrupt;
use crate::models::{ModelSource, TextModel};
use crate::output::{ReplyWriter, note};
use crate::prompt::model_and_text;
use crate::session;
use anyhow::{Result, bail};
use clap::Args;
use forge_core::chat::{Conversation, Message, RenderOptions, Role};
use forge_core::engine::{EngineOptions, Request};
use forge_core::tokenizer::SpecialTokens;
use forge_core::{Backend, TokenId};
use std::process::ExitCode;

/// Complete a prompt, or answer it with the model's chat template.
///
/// The embedded model continues the prompt as text unless --chat, --system or --think ask for its
/// template. Any other model with a chat template answers the prompt unless --raw is given.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    forge run \"Once upon a time\"\n  \
    forge run ./Qwen3.5-4B \"Why is the sky blue?\" --max-tokens 500\n  \
    git diff | forge run qwen3.5-4b.ytf - --system \"Write a commit message.\"")]
pub(crate) struct Run {
    /// Model (folder, .gguf or .ytf; without it the embedded forge-tiny), then the prompt; - or a
    /// pipe reads the prompt from standard input
    #[arg(value_names = ["MODEL", "PROMPT"], num_args = 0..=2)]
    arguments: Vec<String>,
    /// Most tokens to generate
    #[arg(long, default_value_t = 256, value_name = "N")]
    max_tokens: usize,
    /// Stop before this text; may be given several times
    #[arg(long, value_name = "STRING")]
    stop: Vec<String>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long, conflicts_with_all = ["chat", "system", "think"])]
    raw: bool,
    /// Answer with the chat template
    #[arg(long)]
    chat: bool,
    /// System message before the prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Let the model reason before it answers, if its template has the choice [default: the
    /// template's]
    #[arg(long, value_enum, value_name = "on|off")]
    think: Option<Switch>,
    /// Print nothing but the reply
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    engine: EngineFlags,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (source, text) = model_and_text(&self.arguments, "prompt")?;
        if text.is_empty() {
            bail!("prompt: is empty");
        }
        let model = TextModel::open(&source)?;
        let (prompt, tokens) = self.prompt(&source, &model, &text)?;
        // Exactly as long as needed; a prompt that fills the model's context is refused later.
        let most = model.checkpoint.config.max_positions;
        let context = tokens.len().saturating_add(self.max_tokens).clamp(1, most);
        let job = Job {
            request: Request {
                sampling: self.sampling.params(&model.checkpoint.generation),
                max_tokens: Some(self.max_tokens),
                stop_tokens: model.stop_tokens.clone(),
                ..Request::new(tokens)
            },
            engine: self.engine.engine(Some(context), 1),
            model: &model,
            prompt,
            stops: &self.stop,
            quiet: self.quiet,
        };
        let reply = with_backend(&self.engine.backend()?, job)?;
        if !self.quiet {
            note(reply.stats);
        }
        Ok(match reply.end {
            End::Interrupted => ExitCode::from(interrupt::EXIT_STATUS),
            _ => ExitCode::SUCCESS,
        })
    }

    /// Text and tokens of the prompt.
    fn prompt(
        &self,
        source: &ModelSource,
        model: &TextModel,
        text: &str,
    ) -> Result<(String, Vec<TokenId>)> {
        let asked = self.chat || self.system.is_some() || self.think.is_some();
        let template = if self.raw { None } else { model.template()? };
        match template {
            None if asked => bail!("{}: has no chat template", model.checkpoint.path.display()),
            Some(template) if asked || *source != ModelSource::Embedded => {
                let mut conversation = Conversation::default();
                let system = self.system.as_deref().map(|text| Message::new(Role::System, text));
                conversation.messages.extend(system);
                conversation.messages.push(Message::new(Role::User, text));
                let options = RenderOptions {
                    enable_thinking: self.think.map(|think| think == Switch::On),
                    ..RenderOptions::default()
                };
                let rendered = template.render(&conversation, &options)?;
                let tokens = rendered.encode(&model.tokenizer)?;
                Ok((rendered.text().into_owned(), tokens))
            }
            _ => {
                let tokens = model.tokenizer.encode_prompt(text, SpecialTokens::Parse)?;
                Ok((text.to_owned(), tokens))
            }
        }
    }
}

/// What is left to do when the backend is open.
struct Job<'a> {
    request: Request,
    engine: EngineOptions,
    model: &'a TextModel,
    prompt: String,
    stops: &'a [String],
    quiet: bool,
}

impl BackendVisitor for Job<'_> {
    type Output = Reply;

    fn visit<B: Backend>(self, backend: B) -> Result<Reply> {
        let mut engine = session::start(backend, &self.model.checkpoint, &self.engine, self.quiet)?;
        let mut writer = ReplyWriter::new();
        let reply = generate(
            &mut engine,
            self.model,
            self.request,
            &self.prompt,
            self.stops,
            &mut |text, reasoning| writer.write(text, reasoning),
        )?;
        writer.finish()?;
        Ok(reply)
    }
}
