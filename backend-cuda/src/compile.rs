//! `kernels/*.cu` -> cubin with NVRTC at run time, cached on disk.
//!
//! The name of a cached file holds a hash of everything that decides its content, so a stale one is
//! never read; its content is checked, so a torn one is compiled again. When every kernel is cached
//! the compiler need not be installed.

use crate::elf;
use crate::nvrtc::Nvrtc;
use crate::sources::{Source, headers};
use forge_core::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// First bytes of a cached file; the number changes with its layout.
const MAGIC: &[u8; 8] = b"FORGECB1";

/// Machine code of one kernel file.
#[derive(Debug)]
pub struct Cubin {
    /// Kernel file it comes from.
    pub file: &'static str,
    /// ELF image.
    pub image: Vec<u8>,
    /// Its kernels.
    pub entries: Vec<elf::Entry>,
}

/// `major * 10 + minor` of a compute capability.
pub type Capability = u32;

/// Compiler options for a device. Division and square root stay IEEE; a kernel that wants a fast
/// intrinsic names it.
pub fn options(capability: Capability) -> Vec<String> {
    // Hopper's own instructions exist only for the target with the suffix.
    let suffix = if capability == 90 { "a" } else { "" };
    vec![
        format!("--gpu-architecture=sm_{capability}{suffix}"),
        "-default-device".into(),
        "--std=c++17".into(),
        "--extra-device-vectorization".into(),
    ]
}

/// Folder for cached cubins: `$XDG_CACHE_HOME/forge/kernels`, else `~/.cache/forge/kernels`.
pub fn default_cache() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CACHE_HOME").or_else(|| {
        let home = variable("HOME").or_else(|| variable("USERPROFILE"))?;
        Some(home.join(".cache"))
    })?;
    Some(base.join("forge").join("kernels"))
}

/// Machine code of all `sources`, from the cache or from the compiler.
///
/// # Errors
/// [`Error::Device`] naming the kernel file with the compiler's message, or saying what to install.
pub fn all(sources: &[Source], capability: Capability, cache: Option<&Path>) -> Result<Vec<Cubin>> {
    let start = Instant::now();
    let nvrtc = Nvrtc::find();
    let version = nvrtc.as_ref().ok().map(Nvrtc::version);
    let compiled = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Cubin>)>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(sources.len()) {
            scope.spawn(|| {
                while let Some((index, source)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    sources.get(index).map(|source| (index, source))
                } {
                    let cubin = cached(source, capability, cache, version.as_deref()).map_or_else(
                        || {
                            compiled.fetch_add(1, Ordering::Relaxed);
                            let nvrtc = nvrtc.as_ref().map_err(|m| Error::device("open", m))?;
                            compile(nvrtc, source, capability, cache)
                        },
                        Ok,
                    );
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done.push((index, cubin));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(index, _)| *index);
    let cubins = done.into_iter().map(|(_, cubin)| cubin).collect::<Result<Vec<_>>>()?;
    let compiled = compiled.into_inner();
    tracing::info!(
        compiled,
        cached = cubins.len() - compiled,
        milliseconds = start.elapsed().as_millis() as u64,
        "kernels ready"
    );
    Ok(cubins)
}

/// Compiles one file afresh and stores it. A cache that cannot be written costs time, not success.
pub(crate) fn compile(
    nvrtc: &Nvrtc,
    source: &Source,
    capability: Capability,
    cache: Option<&Path>,
) -> Result<Cubin> {
    let result = nvrtc.compile(source.name, source.text, &headers(), &options(capability));
    let image = result.map_err(|message| Error::device("compile", message))?.cubin;
    let entries = elf::entries(&image)
        .map_err(|m| Error::device("compile", format!("{}: {m}", source.name)))?;
    if let Some(folder) = cache {
        let path = folder.join(file_name(source, capability, &nvrtc.version()));
        if let Err(error) = store(&path, &image) {
            tracing::warn!(path = %path.display(), %error, "a compiled kernel is not cached");
        }
    }
    Ok(Cubin { file: source.name, image, entries })
}

fn store(path: &Path, image: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut content = MAGIC.to_vec();
    content.extend(hash([image]).to_le_bytes());
    content.extend_from_slice(image);
    // Two processes that start together each write their own file; the last rename wins.
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&temporary, content)?;
    std::fs::rename(&temporary, path).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// The cached cubin, if there is a whole one. Without a compiler any compiler's will do.
fn cached(
    source: &Source,
    capability: Capability,
    cache: Option<&Path>,
    version: Option<&str>,
) -> Option<Cubin> {
    let folder = cache?;
    let path = match version {
        Some(version) => folder.join(file_name(source, capability, version)),
        None => {
            let prefix = file_prefix(source, capability);
            let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
            let name = names
                .filter_map(|name| name.into_string().ok())
                .filter(|name| name.starts_with(&prefix) && name.ends_with(".cubin"))
                .max()?;
            folder.join(name)
        }
    };
    let content = std::fs::read(path).ok()?;
    let (magic, rest) = content.split_first_chunk::<8>()?;
    let (sum, image) = rest.split_first_chunk::<16>()?;
    if magic != MAGIC || u128::from_le_bytes(*sum) != hash([image]) {
        return None;
    }
    let entries = elf::entries(image).ok()?;
    Some(Cubin { file: source.name, image: image.to_vec(), entries })
}

fn file_prefix(source: &Source, capability: Capability) -> String {
    let options = options(capability).join(" ");
    let mut parts = vec![source.text.as_bytes(), options.as_bytes()];
    for (name, text) in headers() {
        parts.extend([name.as_bytes(), text.as_bytes()]);
    }
    format!("{}-sm{capability}-{:032x}-nvrtc", source.name, hash(parts))
}

fn file_name(source: &Source, capability: Capability, version: &str) -> String {
    format!("{}{version}.cubin", file_prefix(source, capability))
}

/// FNV-1a, 128 bits: finds changed and torn files, not forged ones. Each part ends with its length,
/// so that bytes cannot move between parts unseen.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut state = OFFSET;
    let mut eat = |byte: u8| state = (state ^ u128::from(byte)).wrapping_mul(PRIME);
    for part in parts {
        part.iter().copied().for_each(&mut eat);
        (part.len() as u64).to_le_bytes().into_iter().for_each(&mut eat);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source {
        name: "probe",
        text: "extern \"C\" __global__ void probe(float* x, int n) { x[0] = n; }",
        hot: false,
    };

    fn only_file(folder: &Path) -> PathBuf {
        let mut files = std::fs::read_dir(folder).unwrap();
        let file = files.next().unwrap().unwrap().path();
        assert!(files.next().is_none(), "no temporary file stays");
        file
    }

    #[test]
    fn a_cache_serves_without_a_compiler_and_a_torn_file_is_replaced() {
        let Ok(nvrtc) = Nvrtc::find() else {
            eprintln!("skipped: {}", crate::nvrtc::INSTALL);
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let cache = Some(folder.path());
        let made = all(&[SOURCE], 80, cache).unwrap();
        assert_eq!(made[0].entries[0].parameters, Some(vec![8, 4]));
        for version in [Some(nvrtc.version()), None] {
            let found = cached(&SOURCE, 80, cache, version.as_deref()).unwrap();
            assert_eq!(found.image, made[0].image);
        }
        assert!(cached(&SOURCE, 86, cache, None).is_none(), "another device, another file");
        let changed = Source { text: "other", ..SOURCE };
        assert!(cached(&changed, 80, cache, None).is_none(), "another text, another file");

        let file = only_file(folder.path());
        let whole = std::fs::read(&file).unwrap();
        for torn in [&whole[..whole.len() / 2], &whole[..4], &[]] {
            std::fs::write(&file, torn).unwrap();
            assert!(cached(&SOURCE, 80, cache, None).is_none());
            assert_eq!(all(&[SOURCE], 80, cache).unwrap()[0].image, made[0].image);
            assert_eq!(std::fs::read(only_file(folder.path())).unwrap(), whole);
        }
    }

    #[test]
    fn a_compiler_error_names_file_and_line() {
        if Nvrtc::find().is_err() {
            return;
        }
        let broken = Source { text: "\n#error broken on purpose", ..SOURCE };
        let error = all(&[broken], 80, None).unwrap_err().to_string();
        assert!(error.contains("probe.cu(2)") && error.contains("broken on purpose"), "{error}");
    }
}
