//! Any checkpoint to a `.ytf` or GGUF file: tensor by tensor, each read back and compared with its
//! source before the file gets its name.

mod calibrate;
mod check;
mod container;
mod importance;
mod mix;
mod observe;
mod part;
mod task;
mod to_gguf;
mod types;
mod view;
mod vocabulary;

pub use calibrate::calibrate;
pub use check::Deviation;
pub use importance::Importance;
pub use mix::Mix;
pub use types::{Base, KeepRule, TypeRules};

use crate::error::{Error, Result};
use crate::weights::quant::StorageType;
use crate::weights::ytf::YtfFile;
use crate::weights::{Checkpoint, Format};
use check::{Differences, compare};
use container::{Contents, Layout};
use part::{Part, Place};
use serde::Serialize;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use task::{Task, batches};
use types::Choice;
use view::View;
use xxhash_rust::xxh3::Xxh3;

/// Bytes at either end of a source tensor that identify it.
const SAMPLE_BYTES: usize = 4096;

/// What a conversion reports while it goes on.
#[derive(Clone, Copy, Debug)]
pub struct ConvertProgress<'a> {
    /// Canonical name of the tensor at work.
    pub tensor: &'a str,
    /// Source bytes done.
    pub done_bytes: u64,
    /// Source bytes of all tensors.
    pub total_bytes: u64,
}

/// Called before each part of a tensor; may end the conversion.
pub type ConvertCallback<'a> = Box<dyn FnMut(ConvertProgress<'_>) -> ControlFlow<()> + 'a>;

/// How to convert.
#[derive(Default)]
pub struct ConvertOptions<'a> {
    /// Types of the matrices.
    pub types: TypeRules,
    /// What the columns are worth to the quantisers.
    pub importance: Option<&'a Importance>,
    /// Replace an existing destination.
    pub overwrite: bool,
    /// Quantise again what is quantised already, which costs more accuracy than the type shows.
    pub allow_requantise: bool,
    /// Leave out the MTP block.
    pub without_mtp: bool,
    /// Threads; `None` = those of the program.
    pub jobs: Option<usize>,
    /// Called before each part of a tensor.
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
    /// Differences to the source.
    #[serde(flatten)]
    pub deviation: Deviation,
    /// False if they are beyond what the type explains.
    pub within_limits: bool,
    /// Bytes in the new file.
    pub bytes: u64,
}

/// What [`convert`] did or [`verify`] found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvertReport {
    /// New file.
    pub path: PathBuf,
    /// Bytes of the source's tensors.
    pub source_bytes: u64,
    /// Bytes of the new file.
    pub file_bytes: u64,
    /// Tensors that an earlier run had written.
    pub resumed: usize,
    /// Tensors in the order of the file.
    pub tensors: Vec<ConvertedTensor>,
}

impl ConvertReport {
    /// The tensor with the largest error.
    pub fn worst(&self) -> Option<&ConvertedTensor> {
        let error = |tensor: &ConvertedTensor| tensor.deviation.relative_rms;
        self.tensors.iter().max_by(|a, b| error(a).total_cmp(&error(b)))
    }

    /// Tensors beyond their limits.
    pub fn failures(&self) -> impl Iterator<Item = &ConvertedTensor> {
        self.tensors.iter().filter(|tensor| !tensor.within_limits)
    }
}

/// Writes `source` as a GGUF file if `destination` ends in `.gguf`, else as a `.ytf`. Vectors,
/// routers and shared gates stay f32. Every tensor is read back and compared with its source, and
/// the whole file is opened, before it appears under its name. A conversion that was interrupted
/// or killed goes on where it was when it is run again with the same arguments. Memory: a part of
/// a tensor at a time.
///
/// # Errors
/// [`Error::Invalid`] if the destination exists, belongs to the source or is being written, or the
/// callback ends the conversion; [`Error::Unsupported`] if a quantised tensor would be quantised
/// again, or the container cannot hold the model; [`Error::Format`] for values that are not finite
/// or do not fit the type, and for a tensor that differs from its source by more than its type
/// explains; [`Error::Io`].
pub fn convert(
    source: &Checkpoint,
    destination: &Path,
    options: ConvertOptions<'_>,
) -> Result<ConvertReport> {
    check_destination(&source.path, destination, options.overwrite)?;
    let contents = Contents::new(source, format_of(destination), options.without_mtp)?;
    let choices = options.types.choose(&contents.views, &contents.config)?;
    check_requantising(source, &contents.views, &choices, options.allow_requantise)?;
    let calibration = options.importance.map(|importance| importance.text.as_str());
    let (mut layout, places) = Layout::new(source, destination, &contents, &choices, calibration)?;
    let key = plan_key(source, &contents, &layout.head()?, options.importance);
    let mut part = Part::open(destination, key, &places)?;
    let resumed = part.done.len();
    let mut job = Job { source, contents: &contents, choices: &choices, places: &places, options };
    let mut interrupted = false;
    if let Err(error) = job.write_tensors(&mut part, &mut interrupted) {
        // What the system or the user ended can go on later; the rest would fail again.
        if !interrupted && !matches!(error, Error::Io { .. }) {
            part.discard();
        }
        return Err(error);
    }
    for done in &part.done {
        layout.set_checksum(&done.tensor, done.checksum);
    }
    let deviations: Vec<Deviation> = part.done.iter().map(|done| done.deviation).collect();
    let file_bytes = layout.file_bytes();
    part.finish(&layout.head()?, file_bytes, |path| check_whole(path, source, &contents))?;
    let tensors = contents.views.iter().zip(&choices).zip(&places).zip(deviations);
    Ok(ConvertReport {
        path: destination.to_owned(),
        source_bytes: contents.views.iter().map(View::source_bytes).sum(),
        file_bytes,
        resumed,
        tensors: tensors
            .map(|(((view, choice), place), deviation)| {
                converted(view, choice.clone(), place.bytes, deviation)
            })
            .collect(),
    })
}

/// Compares a file with the checkpoint that it was made from. A `.ytf` must also agree with its own
/// checksums.
///
/// # Errors
/// [`Error::MissingTensor`] or [`Error::Format`] if the file lacks tensors or is damaged; a tensor
/// that differs too much is an entry of the report.
pub fn verify(
    written: &Path,
    source: &Checkpoint,
    mut progress: Option<ConvertCallback<'_>>,
) -> Result<ConvertReport> {
    let file = Checkpoint::open(written)?;
    if file.format == Format::Ytf {
        YtfFile::open(written)?.verify()?;
    }
    let without_mtp = !file.config.mtp;
    let contents = Contents::new(source, file.format, without_mtp)?;
    check_contents(&file, &contents)?;
    let total_bytes = contents.views.iter().map(View::source_bytes).sum();
    let mut done_bytes = 0;
    let mut tensors = Vec::with_capacity(contents.views.len());
    for view in &contents.views {
        let stored = file.tensor(&view.canonical)?;
        let row_bytes = stored.row_bytes();
        let mut all = Differences::default();
        for rows in batches(view) {
            if let Some(progress) = &mut progress {
                let state = ConvertProgress { tensor: &view.canonical, done_bytes, total_bytes };
                if progress(state).is_break() {
                    return Err(Error::invalid("verification", "interrupted"));
                }
            }
            let range = rows.start * row_bytes..rows.end * row_bytes;
            let bytes = stored.data.as_slice().get(range).unwrap_or_default();
            done_bytes += (rows.len() * view.tensor.row_bytes()) as u64;
            all = all.merge(compare(view, stored.storage, rows, bytes)?);
        }
        let choice = Choice { storage: stored.storage, fallback: None };
        tensors.push(converted(view, choice, stored.data.len() as u64, all.deviation()));
    }
    Ok(ConvertReport {
        path: written.to_owned(),
        source_bytes: total_bytes,
        file_bytes: fs::metadata(written).map_err(|e| Error::io(written, e))?.len(),
        resumed: 0,
        tensors,
    })
}

fn converted(view: &View, choice: Choice, bytes: u64, deviation: Deviation) -> ConvertedTensor {
    ConvertedTensor {
        name: view.canonical.clone(),
        from: view.tensor.storage.name(),
        to: choice.storage.name(),
        fallback: choice.fallback,
        deviation,
        within_limits: is_within(view, choice.storage, deviation),
        bytes,
    }
}

/// A copy must be exact, which also holds where the type is the same but columns moved.
fn is_within(view: &View, storage: StorageType, deviation: Deviation) -> bool {
    match view.copies(storage) {
        true => deviation == Deviation::default(),
        false => deviation.within(storage),
    }
}

/// Container by the end of the name.
fn format_of(destination: &Path) -> Format {
    let gguf = destination.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
    if gguf { Format::Gguf } else { Format::Ytf }
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
    if existing.is_dir() {
        return invalid("is a folder");
    }
    if !overwrite {
        return invalid("exists; allow overwriting or choose another name");
    }
    Ok(())
}

fn check_requantising(
    source: &Checkpoint,
    views: &[View],
    choices: &[Choice],
    allowed: bool,
) -> Result<()> {
    let is_quantised = |storage: StorageType| storage.block().0 > 1;
    for (view, Choice { storage, .. }) in views.iter().zip(choices) {
        let again = is_quantised(view.tensor.storage) && is_quantised(*storage);
        if again && !view.copies(*storage) && !allowed {
            let what =
                format!("quantising {} from {} to {storage}", view.canonical, view.tensor.storage);
            let reason = if view.tensor.storage == *storage {
                "its columns change their places, which splits blocks; allow requantising".into()
            } else {
                format!(
                    "{} is quantised already; convert the original, or allow requantising",
                    source.path.display()
                )
            };
            return Err(Error::unsupported(what, reason));
        }
    }
    Ok(())
}

/// Everything that decides the bytes of the new file, as a number.
fn plan_key(
    source: &Checkpoint,
    contents: &Contents,
    head: &[u8],
    importance: Option<&Importance>,
) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(head);
    let modified = |path: &Path| {
        let time = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|time| time.as_nanos())
    };
    hash.update(format!("{:?}", modified(&source.path)).as_bytes());
    for view in &contents.views {
        let data = view.tensor.data.as_slice();
        hash.update(format!("{} {:?}", view.tensor.storage, view.tensor.shape).as_bytes());
        hash.update(&data[..data.len().min(SAMPLE_BYTES)]);
        hash.update(&data[data.len().saturating_sub(SAMPLE_BYTES)..]);
    }
    if let Some(importance) = importance {
        importance.hash(&mut hash);
    }
    hash.digest()
}

/// Opens the complete file as an engine would.
fn check_whole(path: &Path, source: &Checkpoint, contents: &Contents) -> Result<()> {
    let written = Checkpoint::open(path)?;
    check_contents(&written, contents)?;
    match contents.format {
        Format::Gguf => vocabulary::compare(source, &written),
        _ => Ok(()),
    }
}

fn check_contents(written: &Checkpoint, contents: &Contents) -> Result<()> {
    if written.config != contents.config {
        let reason = "is not the configuration of the source";
        return Err(Error::format(&written.path, "config", reason));
    }
    if written.tensors.len() != contents.views.len() {
        let (found, expected) = (written.tensors.len(), contents.views.len());
        let reason = format!("there are {found}, the source has {expected}");
        return Err(Error::format(&written.path, "tensors", reason));
    }
    contents.views.iter().try_for_each(|view| written.tensor(&view.canonical).map(|_| ()))
}

/// A conversion that has a plan.
struct Job<'a, 'b> {
    source: &'a Checkpoint,
    contents: &'a Contents,
    choices: &'a [Choice],
    places: &'a [Place],
    options: ConvertOptions<'b>,
}

impl Job<'_, '_> {
    /// Writes what the part lacks. `interrupted` says that the callback ended it.
    fn write_tensors(&mut self, part: &mut Part, interrupted: &mut bool) -> Result<()> {
        let pool = match self.options.jobs {
            Some(jobs) => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
                Some(pool.map_err(|e| Error::invalid("jobs", e.to_string()))?)
            }
            None => None,
        };
        let views = &self.contents.views;
        let total_bytes = views.iter().map(View::source_bytes).sum();
        let mut done_bytes = 0;
        for (index, (view, place)) in views.iter().zip(self.places).enumerate() {
            if index < part.done.len() {
                done_bytes += view.source_bytes();
                continue;
            }
            let storage = self.choices[index].storage;
            let importance = match self.options.importance {
                Some(importance) => importance.of(view)?,
                None => &[],
            };
            let progress = &mut self.options.progress;
            let mut report = |rows: &Range<usize>| {
                let state = ConvertProgress { tensor: &view.canonical, done_bytes, total_bytes };
                done_bytes += (rows.len() * view.tensor.row_bytes()) as u64;
                let stop = progress.as_mut().is_some_and(|progress| progress(state).is_break());
                if stop {
                    *interrupted = true;
                    let reason = "interrupted; the same command goes on from here";
                    return Err(Error::invalid("conversion", reason));
                }
                Ok(())
            };
            let task = Task { path: &self.source.path, view, storage, importance };
            let done = match &pool {
                Some(pool) => task.run(part, place, &mut report, |f| pool.install(f))?,
                None => task.run(part, place, &mut report, |f| f())?,
            };
            if !is_within(view, storage, done.deviation) {
                let Deviation { relative_rms, worst_block } = done.deviation;
                let reason = format!(
                    "as {storage} it differs from its source by {relative_rms:.2e}, in a block by \
                     {worst_block:.2e}, more than this type explains; keep it in a larger one"
                );
                return Err(Error::format(&self.source.path, &*view.canonical, reason));
            }
            part.note(done)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
