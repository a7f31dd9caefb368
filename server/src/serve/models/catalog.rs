//! Which models can be served, and by which names.

use crate::models::ModelSource;
use std::path::{Path, PathBuf};

/// A model that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Name.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) source: ModelSource,
    /// Other names.
    pub(crate) aliases: Vec<String>,
}

/// All of them: the one that was named at the start, and those in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    first: Entry,
    folder: Option<PathBuf>,
}

impl Catalog {
    /// A catalog of the model that `forge serve` was given and those in `folder`.
    pub(crate) fn new(first: ModelSource, aliases: Vec<String>, folder: Option<PathBuf>) -> Self {
        let name = match &first {
            ModelSource::Embedded => "forge-tiny".to_owned(),
            ModelSource::Path(path) => name_of(path),
        };
        Self { first: Entry { name, source: first, aliases }, folder }
    }

    /// The model that was named at the start.
    pub(crate) fn first(&self) -> &Entry {
        &self.first
    }

    /// Every model, as the folder is now, in order of names behind the first. Reads the folder.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut found: Vec<Entry> = Vec::new();
        let listing = self.folder.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
        for path in listing.flatten().filter_map(|entry| Some(entry.ok()?.path())) {
            let model = path.to_str().is_some_and(ModelSource::is_model_path);
            if model && !self.is_first(&path) {
                let source = ModelSource::Path(path.clone());
                found.push(Entry { name: name_of(&path), source, aliases: Vec::new() });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.retain(|entry| entry.name != self.first.name);
        found.dedup_by(|a, b| a.name == b.name);
        found.insert(0, self.first.clone());
        found
    }

    fn is_first(&self, path: &Path) -> bool {
        let ModelSource::Path(first) = &self.first.source else { return false };
        let canonical = |path: &Path| std::fs::canonicalize(path).ok();
        canonical(path).is_some_and(|path| canonical(first) == Some(path))
    }
}

/// A folder's name, or a file's without its ending.
fn name_of(path: &Path) -> String {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_listed_as_it_is_now() {
        let folder = tempfile::tempdir().unwrap();
        let catalog =
            Catalog::new(ModelSource::Embedded, vec!["a".into()], Some(folder.path().to_owned()));
        let names = || catalog.entries().into_iter().map(|e| e.name).collect::<Vec<_>>();
        assert_eq!(names(), ["forge-tiny"]);
        for name in ["b.gguf", "a.ytf", "forge-tiny.ytf", "notes.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("c")).unwrap();
        std::fs::write(folder.path().join("c/config.json"), "{}").unwrap();
        assert_eq!(names(), ["forge-tiny", "a", "b", "c"]);
    }
}
