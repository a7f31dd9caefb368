//! Finds the model that a command names.

use anyhow::{Context, Result};
use forge_core::TokenId;
use forge_core::chat::{ChatTemplate, TemplateTokens};
use forge_core::tokenizer::Tokenizer;
use forge_core::weights::Checkpoint;
use std::path::{Path, PathBuf};

/// The model inside the program; `assets/README.md` says how it was made.
static FORGE_TINY: &[u8] = include_bytes!("../assets/forge-tiny.ytf");

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelSource {
    /// In the program.
    Embedded,
    /// A folder or file.
    Path(PathBuf),
}

impl From<Option<PathBuf>> for ModelSource {
    fn from(path: Option<PathBuf>) -> Self {
        path.map_or(Self::Embedded, Self::Path)
    }
}

impl ModelSource {
    /// Opens the checkpoint.
    ///
    /// # Errors
    /// Those of [`Checkpoint::open`].
    pub(crate) fn open(&self) -> Result<Checkpoint> {
        Ok(match self {
            Self::Embedded => {
                Checkpoint::from_ytf_bytes("embedded forge-tiny.ytf", FORGE_TINY.into())?
            }
            Self::Path(path) => Checkpoint::open(path)?,
        })
    }

    /// True if `text` is the path of something that looks like a model, not a prompt.
    pub(crate) fn is_model_path(text: &str) -> bool {
        let path = Path::new(text);
        let file = path.extension().is_some_and(|end| end == "gguf" || end == "ytf");
        (file && path.is_file()) || path.join("config.json").is_file()
    }
}

/// A checkpoint with what turns text into its tokens and back.
pub(crate) struct TextModel {
    /// Checkpoint.
    pub(crate) checkpoint: Checkpoint,
    /// Tokenizer.
    pub(crate) tokenizer: Tokenizer,
    /// Tokens that end a reply.
    pub(crate) stop_tokens: Vec<TokenId>,
}

impl AsRef<Tokenizer> for TextModel {
    fn as_ref(&self) -> &Tokenizer {
        &self.tokenizer
    }
}

impl TextModel {
    /// Opens checkpoint and tokenizer.
    ///
    /// # Errors
    /// Those of the readers.
    pub(crate) fn open(source: &ModelSource) -> Result<Self> {
        let checkpoint = source.open()?;
        let tokenizer =
            Tokenizer::from_source(&checkpoint.tokenizer, checkpoint.tokenizer_config.as_deref())
                .with_context(|| checkpoint.path.display().to_string())?;
        let stop_tokens = tokenizer.stop_tokens(&checkpoint.generation);
        Ok(Self { checkpoint, tokenizer, stop_tokens })
    }

    /// The chat template, if the checkpoint has one.
    ///
    /// # Errors
    /// If it does not compile.
    pub(crate) fn template(&self) -> Result<Option<ChatTemplate>> {
        let Some(source) = &self.checkpoint.chat_template else { return Ok(None) };
        let template = ChatTemplate::new(source, TemplateTokens::of(&self.tokenizer))
            .with_context(|| self.checkpoint.path.display().to_string())?;
        Ok(Some(template))
    }
}
