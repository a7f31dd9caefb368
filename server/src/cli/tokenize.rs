//! `forge tokenize`: text to tokens, to see what a model sees.

use crate::models::TextModel;
use crate::output::{print, print_json};
use crate::prompt::model_and_text;
use anyhow::Result;
use clap::Args;
use forge_core::tokenizer::SpecialTokens;
use serde::Serialize;
use std::fmt::Write;
use std::process::ExitCode;

/// Show the tokens of a text.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  forge tokenize ./Qwen3.5-4B \"Hello, world\"")]
pub(crate) struct Tokenize {
    /// Model (without it the embedded forge-tiny), then the text; - or a pipe reads standard input
    #[arg(value_names = ["MODEL", "TEXT"], num_args = 0..=2)]
    arguments: Vec<String>,
    /// Control tokens that the text spells out are control tokens; otherwise they are text
    #[arg(long)]
    special: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A token and what it stands for.
#[derive(Serialize)]
struct TokenOut {
    id: u32,
    text: String,
}

impl Tokenize {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (source, text) = model_and_text(&self.arguments, "text")?;
        let model = TextModel::open(&source)?;
        let special = if self.special { SpecialTokens::Parse } else { SpecialTokens::AsText };
        let ids = model.tokenizer.encode(&text, special)?;
        let tokens: Vec<TokenOut> = ids
            .iter()
            .map(|&id| TokenOut {
                id: id.0,
                text: model.tokenizer.token_text(id).unwrap_or_default(),
            })
            .collect();
        if self.json {
            print_json(&tokens)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = String::new();
        for token in &tokens {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{:>7}  {:?}", token.id, token.text);
        }
        print(format_args!("{out}{} tokens\n", tokens.len()))?;
        Ok(ExitCode::SUCCESS)
    }
}
