//! `forge chat`: a conversation in the terminal.

use super::options::{EngineFlags, SamplingFlags, Switch};
use crate::backend::{BackendVisitor, with_backend};
use crate::generate::{End, generate};
use crate::models::{ModelSource, TextModel};
use crate::output::{ReplyWriter, note};
use crate::session;
use crate::transcript::Transcript;
use anyhow::{Context, Result};
use clap::Args;
use forge_core::Backend;
use forge_core::engine::{Engine, EngineOptions, Request};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "/reset  forget the conversation\n/help   show this\n/exit   leave, as Ctrl-D does\n\
    A line that ends with \\ goes on in the next one. Ctrl-C stops an answer.";

/// Talk to a model.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forge chat ./Qwen3.5-4B --system \"Answer in one sentence.\"")]
pub(crate) struct Chat {
    /// Folder, .gguf or .ytf [default: the embedded forge-tiny]
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Most tokens of an answer [default: until the context is full]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Stop before this text; may be given several times
    #[arg(long, value_name = "STRING")]
    stop: Vec<String>,
    /// Continue what was said as plain text, without the chat template
    #[arg(long, conflicts_with_all = ["system", "think"])]
    raw: bool,
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Let the model reason before it answers, if its template has the choice [default: the
    /// template's]
    #[arg(long, value_enum, value_name = "on|off")]
    think: Option<Switch>,
    /// Keep the lines you type in this file
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Show speed and cached tokens after each answer
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    sampling: SamplingFlags,
    #[command(flatten)]
    engine: EngineFlags,
}

impl Chat {
    pub(super) fn run(self) -> Result<ExitCode> {
        let model = TextModel::open(&ModelSource::from(self.model.clone()))?;
        let template = if self.raw {
            None
        } else {
            let path = model.checkpoint.path.display();
            Some(
                model
                    .template()?
                    .with_context(|| format!("{path}: has no chat template; use --raw"))?,
            )
        };
        let think = self.think.map(|think| think == Switch::On);
        let transcript = Transcript::new(template, self.system.clone(), think);
        let backend = self.engine.backend()?;
        with_backend(&backend, Session { chat: &self, model: &model, transcript })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What is left to do when the backend is open.
struct Session<'a> {
    chat: &'a Chat,
    model: &'a TextModel,
    transcript: Transcript,
}

impl BackendVisitor for Session<'_> {
    type Output = ();

    fn visit<B: Backend>(mut self, backend: B) -> Result<()> {
        let options = EngineOptions { prefix_cache: true, ..self.chat.engine.engine(None, 1) };
        let mut engine = session::start(backend, &self.model.checkpoint, &options, false)?;
        let mut input = Input::open(self.chat.history.as_ref())?;
        if input.is_terminal() {
            note("/help lists the commands");
        }
        while let Some(line) = input.read()? {
            match line.trim() {
                "" => {}
                "/exit" | "/quit" => break,
                "/help" => note(HELP),
                "/reset" => self.transcript.reset(),
                command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                    note(format_args!("unknown command {command}; /help lists them"));
                }
                _ => self.answer(&mut engine, &line)?,
            }
        }
        input.save()
    }
}

impl Session<'_> {
    fn answer<B: Backend>(&mut self, engine: &mut Engine<B>, line: &str) -> Result<()> {
        let turn = self.transcript.ask(&self.model.tokenizer, line)?;
        let context = engine.plan().context;
        if turn.tokens.len() >= context {
            self.transcript.take_back();
            let tokens = turn.tokens.len();
            note(format_args!(
                "{tokens} tokens do not fit a context of {context}; /reset begins anew, --ctx enlarges it"
            ));
            return Ok(());
        }
        let request = Request {
            sampling: self.chat.sampling.params(&self.model.checkpoint.generation),
            max_tokens: self.chat.max_tokens,
            stop_tokens: self.model.stop_tokens.clone(),
            ..Request::new(turn.tokens.clone())
        };
        let mut writer = ReplyWriter::new();
        let reply = generate(
            engine,
            self.model,
            request,
            &turn.text,
            &self.chat.stop,
            &mut |text, reasoning| writer.write(text, reasoning),
        )?;
        writer.finish()?;
        match reply.end {
            End::Interrupted => note("(stopped)"),
            End::Context => note("(the context is full; /reset begins anew)"),
            End::Stop | End::Length => {}
        }
        if self.chat.verbose {
            note(reply.stats);
        }
        self.transcript.answered(&self.model.tokenizer, turn, &reply);
        Ok(())
    }
}

/// Where lines come from.
enum Input<'a> {
    /// A person, with line editing.
    Terminal { editor: Box<DefaultEditor>, history: Option<&'a PathBuf> },
    /// A pipe or file.
    Lines,
}

impl<'a> Input<'a> {
    fn open(history: Option<&'a PathBuf>) -> Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::Lines);
        }
        let mut editor = Box::new(DefaultEditor::new().context("line editor")?);
        if let Some(path) = history.filter(|path| path.exists()) {
            editor.load_history(path).with_context(|| path.display().to_string())?;
        }
        Ok(Self::Terminal { editor, history })
    }

    fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// The next entry; `None` at the end.
    fn read(&mut self) -> Result<Option<String>> {
        let mut entry = String::new();
        let mut prompt = "> ";
        while let Some(line) = self.line(prompt)? {
            match line.strip_suffix('\\') {
                Some(line) => {
                    entry.push_str(line);
                    entry.push('\n');
                    prompt = "| ";
                }
                None => return Ok(Some(entry + &line)),
            }
        }
        Ok((!entry.is_empty()).then_some(entry))
    }

    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        match self {
            Self::Lines => {
                let line = io::stdin().lock().lines().next();
                Ok(line.transpose().context("standard input")?)
            }
            Self::Terminal { editor, .. } => loop {
                match editor.readline(prompt) {
                    Ok(line) => {
                        if !line.is_empty() {
                            editor.add_history_entry(&line)?;
                        }
                        return Ok(Some(line));
                    }
                    // Ctrl-C clears the line, Ctrl-D leaves.
                    Err(ReadlineError::Interrupted) => note("(Ctrl-D or /exit leaves)"),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(error) => return Err(error.into()),
                }
            },
        }
    }

    fn save(self) -> Result<()> {
        if let Self::Terminal { mut editor, history: Some(path) } = self {
            editor.save_history(path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}
