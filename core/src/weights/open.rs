//! Opens any checkpoint under canonical names.

use super::canonical::{ROPE_FREQS, Slot, Source, Transform, slots};
use super::gguf::GgufFile;
use super::host::{HostBytes, HostTensor};
use super::safetensors::SafetensorsFolder;
use super::ytf::{self, YtfFile};
use super::{
    Checkpoint, Format, GgufVocabulary, TokenizerSource, generation, names_gguf, names_hf,
};
use crate::config::ModelConfig;
use crate::config::json::parse_object;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// First bytes of a GGUF file.
const GGUF_MAGIC: &[u8] = b"GGUF";
/// Entries of a folder that an error repeats.
const LISTED: usize = 12;

impl Checkpoint {
    /// Opens a Hugging Face folder, a GGUF file (of a split set the first), or a `.ytf` file. Files
    /// are told apart by their first bytes. Matrices stay in the mapped files.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] naming file, field or tensor and the value at fault;
    /// [`Error::MissingTensor`]; [`Error::Unsupported`] for a model or feature that forge lacks.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if fs::metadata(path).map_err(|e| Error::io(path, e))?.is_dir() {
            return open_folder(path);
        }
        let head = first_bytes(path)?;
        if head.starts_with(GGUF_MAGIC) {
            open_gguf(&GgufFile::open(path)?)
        } else if head.starts_with(&ytf::MAGIC) {
            from_ytf(YtfFile::open(path)?)
        } else {
            Err(Error::format(path, "magic", wrong_magic(path, &head)))
        }
    }

    /// Opens a `.ytf` file in memory. `name` stands for a path in messages.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_ytf_bytes(name: &str, bytes: HostBytes) -> Result<Self> {
        from_ytf(YtfFile::parse(Path::new(name), bytes)?)
    }
}

/// Up to eight bytes from the start of a file.
fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(ytf::MAGIC.len() as u64).read_to_end(&mut head))
        .map_err(|e| Error::io(path, e))?;
    Ok(head)
}

fn wrong_magic(path: &Path, head: &[u8]) -> String {
    let mut reason = format!(
        "the file starts with \"{}\", a GGUF file with \"{}\", a .ytf file with \"{}\"",
        head.escape_ascii(),
        GGUF_MAGIC.escape_ascii(),
        ytf::MAGIC.escape_ascii(),
    );
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        reason.push_str("; open the folder that holds it");
    }
    reason
}

/// Reads a text file; `None` if it is not there.
fn read_text(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

/// Reads a text file that the folder must have.
fn require_text(folder: &Path, name: &str) -> Result<(PathBuf, String)> {
    let path = folder.join(name);
    match read_text(&path)? {
        Some(text) => Ok((path, text)),
        None => Err(Error::format(
            folder,
            name,
            format!("the file is missing; the folder holds {}", listing(folder)?),
        )),
    }
}

/// Names in a folder, for messages.
fn listing(folder: &Path) -> Result<String> {
    let io = |e| Error::io(folder, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        names.push(entry.map_err(io)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    Ok(match (names.is_empty(), more) {
        (true, _) => "nothing".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    })
}

/// Last part of a path, without the extension of a file.
fn file_name(path: &Path, extension: bool) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if extension { resolved.file_name() } else { resolved.file_stem() };
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn open_folder(folder: &Path) -> Result<Checkpoint> {
    let (config_path, config_text) = require_text(folder, "config.json")?;
    let mut config = ModelConfig::from_hf(&config_path, &config_text)?;
    let (_, tokenizer) = require_text(folder, "tokenizer.json")?;
    let generation_path = folder.join("generation_config.json");
    let generation_text = read_text(&generation_path)?;
    let generation = generation::from_hf(
        (&config_path, &config_text),
        generation_text.as_deref().map(|text| (&*generation_path, text)),
    )?;
    let tokenizer_config = read_text(&folder.join("tokenizer_config.json"))?;
    let chat_template = chat_template(folder, tokenizer_config.as_deref())?;
    let files = SafetensorsFolder::open(folder)?;
    let tensors = names_hf::assemble(folder, files.tensors, &mut config)?;
    Ok(Checkpoint {
        path: folder.to_owned(),
        format: Format::Safetensors,
        name: file_name(folder, true),
        config,
        tokenizer: TokenizerSource::Json(tokenizer),
        chat_template,
        tokenizer_config,
        generation,
        tensors,
    })
}

/// The template of a folder: its own file, else the field of `tokenizer_config.json`, which is the
/// source or a list of named ones.
fn chat_template(folder: &Path, tokenizer_config: Option<&str>) -> Result<Option<String>> {
    if let Some(text) = read_text(&folder.join("chat_template.jinja"))? {
        return Ok(Some(text));
    }
    let Some(text) = tokenizer_config else { return Ok(None) };
    let path = folder.join("tokenizer_config.json");
    let object = parse_object(&path, text)?;
    let wrong = |reason: &str| Error::format(&path, "chat_template", reason);
    match object.get("chat_template") {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(source)) => Ok(Some(source.clone())),
        Some(serde_json::Value::Array(list)) => {
            let default = list
                .iter()
                .find(|entry| entry.get("name").and_then(|name| name.as_str()) == Some("default"));
            let source = default.and_then(|entry| entry.get("template")).and_then(|v| v.as_str());
            match source {
                Some(source) => Ok(Some(source.to_owned())),
                None if list.is_empty() => Ok(None),
                None => Err(wrong("the list has no entry named default with a template")),
            }
        }
        Some(_) => Err(wrong("expected a string or a list of named templates")),
    }
}

fn open_gguf(file: &GgufFile) -> Result<Checkpoint> {
    let mut config = ModelConfig::from_gguf(file)?;
    let vocabulary = gguf_vocabulary(file)?;
    if vocabulary.tokens.len() > config.vocab_size {
        return Err(Error::format(
            &file.path,
            "tokenizer.ggml.tokens",
            format!("{} tokens for {} rows", vocabulary.tokens.len(), config.vocab_size),
        ));
    }
    let tensors = names_gguf::assemble(&file.path, file.tensors.clone(), &mut config)?;
    let name = file.optional_str("general.name")?.filter(|name| !name.is_empty());
    Ok(Checkpoint {
        path: file.path.clone(),
        format: Format::Gguf,
        name: name.map_or_else(|| file_name(&file.path, false), str::to_owned),
        config,
        tokenizer: TokenizerSource::Gguf(Box::new(vocabulary)),
        chat_template: file.optional_str("tokenizer.chat_template")?.map(str::to_owned),
        tokenizer_config: None,
        generation: generation::from_gguf(file)?,
        tensors,
    })
}

/// The `tokenizer.ggml.*` keys.
fn gguf_vocabulary(file: &GgufFile) -> Result<GgufVocabulary> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let tokens = file.require_strings(&key("tokens"))?.to_vec();
    let token_types = file.optional_i32s(&key("token_type"))?.unwrap_or_default();
    let scores = file.optional_f32s(&key("scores"))?.unwrap_or_default();
    for (name, len) in [("token_type", token_types.len()), ("scores", scores.len())] {
        if len != 0 && len != tokens.len() {
            let reason = format!("{len} entries for {} tokens", tokens.len());
            return Err(Error::format(&file.path, key(name), reason));
        }
    }
    let id = |name: &str| file.optional_u32(&key(name));
    Ok(GgufVocabulary {
        model: file.require_str(&key("model"))?.to_owned(),
        pre: file.optional_str(&key("pre"))?.unwrap_or("default").to_owned(),
        tokens,
        token_types,
        merges: file.optional_strings(&key("merges"))?.unwrap_or_default().to_vec(),
        scores,
        bos: id("bos_token_id")?,
        eos: generation::gguf_eos(file)?,
        pad: id("padding_token_id")?,
        unknown: id("unknown_token_id")?,
        add_bos: file.optional_bool(&key("add_bos_token"))?,
        add_eos: file.optional_bool(&key("add_eos_token"))?,
        add_space_prefix: file.optional_bool(&key("add_space_prefix"))?,
    })
}

fn from_ytf(file: YtfFile) -> Result<Checkpoint> {
    let YtfFile { path, header, tensors } = file;
    header.config.check(&path)?;
    let tensors = check_canonical(&path, tensors, &header.config)?;
    Ok(Checkpoint {
        path,
        format: Format::Ytf,
        name: header.name,
        config: header.config,
        tokenizer: header.tokenizer,
        chat_template: header.chat_template,
        tokenizer_config: header.tokenizer_config,
        generation: header.generation,
        tensors,
    })
}

/// Checks tensors that already have canonical names.
fn check_canonical(
    path: &Path,
    tensors: BTreeMap<String, HostTensor>,
    config: &ModelConfig,
) -> Result<BTreeMap<String, HostTensor>> {
    let mut source = Source::new(path, tensors);
    let mut wanted = slots(config, &|layer| source.has(&format!("{layer}moe.experts.gate_up")));
    if source.has(ROPE_FREQS) {
        wanted.push(Slot::rope_freqs(config));
    }
    let mut checked = BTreeMap::new();
    for slot in wanted {
        let tensor = source.take_for(&slot, &slot.name, Transform::Keep)?;
        checked.insert(slot.name, tensor);
    }
    source.finish(|_| false)?;
    Ok(checked)
}

#[cfg(test)]
mod tests;
