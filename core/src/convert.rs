//! Checkpoint to `.ytf`: tensor by tensor, and each compared with its source in the finished file.

use crate::error::{Error, Result};
use crate::weights::Checkpoint;
use crate::weights::canonical::{Role, role};
use crate::weights::host::HostTensor;
use crate::weights::quant::StorageType;
use crate::weights::ytf::{PlannedTensor, Provenance, YtfFile, YtfHeader, YtfWriter};
use rayon::prelude::*;
use serde::Serialize;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Types that stand in for one that does not fit, by growing bits per value.
const LADDER: [StorageType; 8] = [
    StorageType::Q2_K,
    StorageType::Q3_K,
    StorageType::Q4_0,
    StorageType::Q4_K,
    StorageType::Q5_0,
    StorageType::Q5_K,
    StorageType::Q6_K,
    StorageType::Q8_0,
];
/// Values that one task converts or compares at a time.
const TASK_VALUES: usize = 1 << 16;

/// What [`convert`] reports before it writes a tensor.
#[derive(Clone, Copy, Debug)]
pub struct ConvertProgress<'a> {
    /// Canonical name of the tensor.
    pub tensor: &'a str,
    /// Source bytes of the tensors done.
    pub done_bytes: u64,
    /// Source bytes of all tensors.
    pub total_bytes: u64,
}

/// Called before each tensor; may end the conversion, which then leaves nothing behind.
pub type ConvertCallback<'a> = Box<dyn FnMut(ConvertProgress<'_>) -> ControlFlow<()> + 'a>;

/// How to convert.
#[derive(Default)]
pub struct ConvertOptions<'a> {
    /// Type of the matrices; `None` keeps the source's types.
    pub storage: Option<StorageType>,
    /// Replace an existing destination.
    pub overwrite: bool,
    /// Quantise again what is quantised already, which costs more accuracy than the type shows.
    pub allow_requantise: bool,
    /// Called before each tensor.
    pub progress: Option<ConvertCallback<'a>>,
}

/// A tensor of a [`ConvertReport`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertedTensor {
    /// Canonical name.
    pub name: String,
    /// Type in the source, by [`StorageType::name`].
    pub from: &'static str,
    /// Type in the new file.
    pub to: &'static str,
    /// Why the type is not the one asked for; `None` if it is.
    pub fallback: Option<String>,
    /// Largest difference to the source, each row's relative to its largest magnitude; 0 = exact.
    pub error: f32,
    /// Bytes in the new file.
    pub bytes: u64,
}

/// What [`convert`] did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertReport {
    /// New file.
    pub path: PathBuf,
    /// Bytes of the source's tensors.
    pub source_bytes: u64,
    /// Bytes of the new file.
    pub file_bytes: u64,
    /// Tensors in the order of the file.
    pub tensors: Vec<ConvertedTensor>,
}

impl ConvertReport {
    /// The tensor with the largest error.
    pub fn worst(&self) -> Option<&ConvertedTensor> {
        self.tensors.iter().max_by(|a, b| a.error.total_cmp(&b.error))
    }
}

/// Writes `source` as a `.ytf` file. Vectors, routers and shared gates stay f32. The file appears
/// when it is complete; it is then read back and every tensor compared with its source. Memory: one
/// tensor at a time.
///
/// # Errors
/// [`Error::Invalid`] if the destination exists or belongs to the source or the callback ends the
/// conversion, [`Error::Unsupported`] if
/// a quantised tensor would be quantised again, [`Error::Format`] for values that are not finite or
/// do not fit the type, [`Error::Io`].
pub fn convert(
    source: &Checkpoint,
    destination: &Path,
    mut options: ConvertOptions<'_>,
) -> Result<ConvertReport> {
    check_destination(&source.path, destination, options.overwrite)?;
    let choices = choose_types(source, &options)?;
    let plan: Vec<PlannedTensor> = choices
        .iter()
        .map(|choice| (choice.name.to_owned(), choice.storage, choice.tensor.shape.clone()))
        .collect();
    let mut writer = YtfWriter::create(destination, header(source), &plan)?;
    let total_bytes = choices.iter().map(|choice| choice.tensor.data.len() as u64).sum();
    let mut done_bytes = 0;
    for choice in &choices {
        if let Some(progress) = &mut options.progress {
            let state = ConvertProgress { tensor: choice.name, done_bytes, total_bytes };
            if progress(state).is_break() {
                return Err(Error::invalid("conversion", "interrupted"));
            }
        }
        if choice.storage == choice.tensor.storage {
            writer.write_tensor(choice.name, choice.tensor.data.as_slice())?;
        } else {
            writer.write_tensor(choice.name, &encode(&source.path, choice)?)?;
        }
        done_bytes += choice.tensor.data.len() as u64;
    }
    writer.finish()?;
    compare_all(source, destination, choices, total_bytes).inspect_err(|_| {
        // A file that differs from its source must not be mistaken for a good one. If it cannot be
        // removed either, the error below still says that it is bad.
        let _ = fs::remove_file(destination);
    })
}

/// A tensor and the type it gets.
struct Choice<'a> {
    name: &'a str,
    tensor: &'a HostTensor,
    storage: StorageType,
    fallback: Option<String>,
}

fn header(source: &Checkpoint) -> YtfHeader {
    let file = source.path.file_name().unwrap_or(source.path.as_os_str());
    YtfHeader {
        name: source.name.clone(),
        config: source.config.clone(),
        tokenizer: source.tokenizer.clone(),
        chat_template: source.chat_template.clone(),
        tokenizer_config: source.tokenizer_config.clone(),
        generation: source.generation.clone(),
        provenance: Provenance {
            source: file.to_string_lossy().into_owned(),
            source_format: source.format,
            forge_version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        tensors: Default::default(),
    }
}

/// The destination must not exist (unless it may be replaced), and never be part of the source.
fn check_destination(source: &Path, destination: &Path, overwrite: bool) -> Result<()> {
    let Ok(existing) = destination.canonicalize() else { return Ok(()) };
    let invalid = |reason: &str| {
        Err(Error::invalid("destination", format!("{} {reason}", destination.display())))
    };
    if let Ok(source) = source.canonicalize()
        && existing.starts_with(&source)
    {
        return invalid("is the source or a part of it");
    }
    if !overwrite {
        return invalid("exists; allow overwriting or choose another name");
    }
    Ok(())
}

fn is_quantised(storage: StorageType) -> bool {
    storage.block().0 > 1
}

/// True if forge can write this type: asked of a block of zeros.
fn has_quantiser(storage: StorageType) -> bool {
    storage.quantize(&vec![0.0; storage.block().0], &mut Vec::new()).is_ok()
}

fn choose_types<'a>(
    source: &'a Checkpoint,
    options: &ConvertOptions<'_>,
) -> Result<Vec<Choice<'a>>> {
    let mut choices = Vec::with_capacity(source.tensors.len());
    for (name, tensor) in &source.tensors {
        let (storage, fallback) = match (role(name), options.storage) {
            (_, None) => (tensor.storage, None),
            (Role::Vector | Role::Router, Some(_)) => (StorageType::F32, None),
            (Role::Matrix, Some(wanted)) => choose_matrix(tensor, wanted),
        };
        let again = is_quantised(tensor.storage) && is_quantised(storage);
        if again && storage != tensor.storage && !options.allow_requantise {
            return Err(Error::unsupported(
                format!("quantising {name} from {} to {storage}", tensor.storage),
                format!(
                    "{} is quantised already; convert the original, or allow requantising",
                    source.path.display()
                ),
            ));
        }
        choices.push(Choice { name, tensor, storage, fallback });
    }
    Ok(choices)
}

/// `wanted`, or the next larger type that forge can write and whose blocks divide a row, or the
/// source's own.
fn choose_matrix(tensor: &HostTensor, wanted: StorageType) -> (StorageType, Option<String>) {
    let columns = tensor.columns();
    let fits = |storage: StorageType| storage.row_bytes(columns).is_some();
    if wanted == tensor.storage {
        return (wanted, None);
    }
    let reason = if !has_quantiser(wanted) {
        format!("{wanted} has no quantiser")
    } else if !fits(wanted) {
        format!("rows of {columns} are not blocks of {wanted}")
    } else {
        return (wanted, None);
    };
    // Bits per value, as bytes of the 256 values that all block sizes divide.
    let size = |storage: StorageType| storage.row_bytes(256).unwrap_or(usize::MAX);
    let next = LADDER
        .into_iter()
        .find(|&t| size(t) > size(wanted) && fits(t) && has_quantiser(t))
        .unwrap_or(tensor.storage);
    (next, Some(reason))
}

/// Rows that one task handles.
fn rows_per_task(columns: usize) -> usize {
    (TASK_VALUES / columns.max(1)).max(1)
}

/// The bytes of `choice.tensor` in its new type.
fn encode(path: &Path, choice: &Choice<'_>) -> Result<Vec<u8>> {
    let Choice { tensor, storage, .. } = *choice;
    let columns = tensor.columns();
    let rows = rows_per_task(columns);
    let fault = |reason: String| Error::format(path, &*tensor.name, reason);
    let (Some(from), Some(to)) = (tensor.storage.row_bytes(columns), storage.row_bytes(columns))
    else {
        return Err(fault(format!("rows of {columns} do not fit type {storage}")));
    };
    let mut out = vec![0; to.saturating_mul(tensor.total_rows())];
    let source = tensor.data.as_slice().par_chunks((rows * from).max(1));
    let target = out.par_chunks_mut((rows * to).max(1));
    source.zip(target).enumerate().try_for_each(|(task, (bytes, target))| {
        let mut values = vec![0.0; bytes.len() / from * columns];
        tensor.storage.dequantize(bytes, &mut values)?;
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            let place = task * rows * columns + index;
            return Err(fault(format!("value {} at index {place} is not finite", values[index])));
        }
        let mut encoded = Vec::with_capacity(target.len());
        storage.quantize(&values, &mut encoded).map_err(|error| fault(error.to_string()))?;
        if encoded.len() != target.len() {
            let reason = format!("{storage} made {} bytes of {}", encoded.len(), target.len());
            return Err(fault(reason));
        }
        target.copy_from_slice(&encoded);
        Ok(())
    })?;
    Ok(out)
}

/// Reads the new file back and compares it.
fn compare_all(
    source: &Checkpoint,
    destination: &Path,
    choices: Vec<Choice<'_>>,
    source_bytes: u64,
) -> Result<ConvertReport> {
    let file = YtfFile::open(destination)?;
    let mut tensors = Vec::with_capacity(choices.len());
    for choice in choices {
        let written = file.tensors.get(choice.name).ok_or_else(|| Error::MissingTensor {
            path: destination.to_owned(),
            name: choice.name.to_owned(),
        })?;
        let error = compare(choice.tensor, written)?;
        if !error.is_finite() || (choice.storage == choice.tensor.storage && error != 0.0) {
            return Err(Error::format(
                destination,
                choice.name,
                format!("differs from {} by {error}", source.path.display()),
            ));
        }
        tensors.push(ConvertedTensor {
            name: choice.name.to_owned(),
            from: choice.tensor.storage.name(),
            to: written.storage.name(),
            fallback: choice.fallback,
            error,
            bytes: written.data.len() as u64,
        });
    }
    let file_bytes = fs::metadata(destination).map_err(|e| Error::io(destination, e))?.len();
    Ok(ConvertReport { path: destination.to_owned(), source_bytes, file_bytes, tensors })
}

/// Largest difference relative to the largest magnitude of its row; infinite if the tensors cannot
/// be compared. Equal types must be equal byte for byte.
fn compare(source: &HostTensor, written: &HostTensor) -> Result<f32> {
    if source.shape != written.shape {
        return Ok(f32::INFINITY);
    }
    if source.storage == written.storage {
        let same = source.data.as_slice() == written.data.as_slice();
        return Ok(if same { 0.0 } else { f32::INFINITY });
    }
    let columns = source.columns().max(1);
    let rows = rows_per_task(columns);
    let (from, to) = (source.row_bytes().max(1), written.row_bytes().max(1));
    source
        .data
        .as_slice()
        .par_chunks(rows * from)
        .zip(written.data.as_slice().par_chunks(rows * to))
        .map(|(a, b)| {
            let mut old = vec![0.0; a.len() / from * columns];
            let mut new = vec![0.0; b.len() / to * columns];
            source.storage.dequantize(a, &mut old)?;
            written.storage.dequantize(b, &mut new)?;
            let rows = old.chunks(columns).zip(new.chunks(columns));
            Ok(rows.map(|(old, new)| row_error(old, new)).fold(0.0, f32::max))
        })
        .try_reduce(|| 0.0, |a: f32, b: f32| Ok(a.max(b)))
}

fn row_error(old: &[f32], new: &[f32]) -> f32 {
    let scale = old.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let differences = old.iter().zip(new).map(|(old, new)| (old - new).abs());
    // A NaN difference would vanish in `max`.
    let most =
        differences.fold(0.0, |most, d| if d.is_nan() { f32::INFINITY } else { d.max(most) });
    if most == 0.0 { 0.0 } else { most / scale }
}

#[cfg(test)]
mod tests;
