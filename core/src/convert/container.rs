//! The container of the new file: which tensors it has, where they lie, how it begins.

use super::part::Place;
use super::to_gguf;
use super::types::Choice;
use super::view::View;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::weights::gguf::GgufLayout;
use crate::weights::ytf::{PlannedTensor, Provenance, YtfHeader, YtfLayout};
use crate::weights::{Checkpoint, Format};
use std::path::Path;

/// What is converted: a source and the tensors of the new file.
pub(super) struct Contents {
    pub(super) format: Format,
    /// Configuration that the new file will have.
    pub(super) config: ModelConfig,
    pub(super) views: Vec<View>,
}

impl Contents {
    /// The tensors of `source` in a container.
    ///
    /// # Errors
    /// Those of the container: sizes or a tokenizer that it cannot hold.
    pub(super) fn new(source: &Checkpoint, format: Format, without_mtp: bool) -> Result<Self> {
        let mut config = source.config.clone();
        config.mtp &= !without_mtp;
        if format == Format::Gguf {
            let (config, views) = to_gguf::views(source, &config)?;
            return Ok(Self { format, config, views });
        }
        let kept =
            source.tensors.iter().filter(|(name, _)| config.mtp || !name.starts_with("mtp."));
        let views = kept.map(|(name, tensor)| View::whole(name, tensor)).collect();
        Ok(Self { format, config, views })
    }
}

/// Where everything lies.
pub(super) enum Layout {
    Ytf { layout: Box<YtfLayout>, end: u64 },
    Gguf(GgufLayout),
}

impl Layout {
    /// Lays out the new file; returns the places of its tensors in order.
    ///
    /// # Errors
    /// Those of the container.
    pub(super) fn new(
        source: &Checkpoint,
        destination: &Path,
        contents: &Contents,
        choices: &[Choice],
        calibration: Option<&str>,
    ) -> Result<(Self, Vec<Place>)> {
        let tensors = contents.views.iter().zip(choices);
        let plan: Vec<PlannedTensor> = tensors
            .map(|(view, choice)| (view.name.clone(), choice.storage, view.shape.clone()))
            .collect();
        let lost = || Error::invalid("plan", "a tensor has no place");
        let mut places = Vec::with_capacity(plan.len());
        if contents.format == Format::Gguf {
            let metadata = to_gguf::metadata(source, contents, choices, calibration)?;
            let layout = GgufLayout::new(destination, &metadata, &plan)?;
            for (index, (name, ..)) in plan.iter().enumerate() {
                let (start, bytes) = layout.tensor(index).ok_or_else(lost)?;
                places.push(Place { name: name.clone(), start, bytes });
            }
            return Ok((Self::Gguf(layout), places));
        }
        let header = header(source, &contents.config, calibration);
        let mut layout = YtfLayout::new(destination, header, &plan)?;
        for (name, ..) in &plan {
            let (start, bytes, _) = layout.tensor(name).ok_or_else(lost)?;
            places.push(Place { name: name.clone(), start, bytes });
        }
        let end = places.last().map_or(0, |place| place.start + place.bytes);
        Ok((Self::Ytf { layout: Box::new(layout), end }, places))
    }

    /// Puts a checksum where the container has a place for it.
    pub(super) fn set_checksum(&mut self, name: &str, value: u64) {
        if let Self::Ytf { layout, .. } = self
            && let Some((_, _, checksum)) = layout.tensor(name)
        {
            *checksum = value;
        }
    }

    /// Beginning of the file.
    ///
    /// # Errors
    /// Those of the container.
    pub(super) fn head(&self) -> Result<Vec<u8>> {
        match self {
            Self::Ytf { layout, .. } => layout.head(),
            Self::Gguf(layout) => Ok(layout.head.clone()),
        }
    }

    /// Bytes of the whole file.
    pub(super) fn file_bytes(&self) -> u64 {
        match self {
            Self::Ytf { end, .. } => *end,
            Self::Gguf(layout) => layout.file_bytes(),
        }
    }
}

fn header(source: &Checkpoint, config: &ModelConfig, calibration: Option<&str>) -> YtfHeader {
    let file = source.path.file_name().unwrap_or(source.path.as_os_str());
    YtfHeader {
        name: source.name.clone(),
        config: config.clone(),
        tokenizer: source.tokenizer.clone(),
        chat_template: source.chat_template.clone(),
        tokenizer_config: source.tokenizer_config.clone(),
        generation: source.generation.clone(),
        provenance: Provenance {
            source: file.to_string_lossy().into_owned(),
            source_format: source.format,
            forge_version: env!("CARGO_PKG_VERSION").to_owned(),
            calibration: calibration.map(str::to_owned),
        },
        tensors: Default::default(),
    }
}
