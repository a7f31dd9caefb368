//! The positional arguments of commands that take a text and perhaps a model before it.

use crate::models::ModelSource;
use anyhow::{Context, Result, bail};
use std::io::{self, IsTerminal, Read};

/// Model and text of `[MODEL] TEXT`. The text `-` stands for standard input, and so does no text
/// where standard input is a pipe or a file.
///
/// # Errors
/// If there is no text, or standard input is not UTF-8.
pub(crate) fn model_and_text(arguments: &[String], what: &str) -> Result<(ModelSource, String)> {
    let piped = !io::stdin().is_terminal();
    let (model, text) = match arguments {
        [model, text] => (ModelSource::Path(model.into()), text.as_str()),
        [model] if ModelSource::is_model_path(model) => {
            if !piped {
                bail!("{what}: {model} is a model; add a {what}");
            }
            (ModelSource::Path(model.into()), "-")
        }
        [text] => (ModelSource::Embedded, text.as_str()),
        _ if piped => (ModelSource::Embedded, "-"),
        _ => bail!("{what}: is missing"),
    };
    if text != "-" {
        return Ok((model, text.to_owned()));
    }
    let mut input = String::new();
    io::stdin().lock().read_to_string(&mut input).context("standard input")?;
    // The line end that a shell adds is not part of what was said.
    let input = input.strip_suffix('\n').unwrap_or(&input);
    Ok((model, input.strip_suffix('\r').unwrap_or(input).to_owned()))
}
