//! The run-time compiler: where it is found, and one call that turns a source into a cubin.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// What to do when the compiler is absent.
pub const INSTALL: &str = "the CUDA run-time compiler (NVRTC 12.0 or newer) is missing: install it \
    with `pip install nvidia-cuda-nvrtc-cu12` or with the CUDA toolkit, or set CUDA_HOME";

type Program = *mut c_void;

/// NVRTC, loaded at run time.
pub struct Nvrtc {
    path: PathBuf,
    version: (i32, i32),
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    error: unsafe extern "C" fn(c_int) -> *const c_char,
    /// Keeps the entry points mapped.
    _library: Library,
}

/// Result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// Machine code.
    pub cubin: Vec<u8>,
    /// Warnings and assembler information.
    pub log: String,
}

impl Nvrtc {
    /// The first compiler found: loader path, CUDA toolkit, Python packages.
    ///
    /// # Errors
    /// [`INSTALL`] if there is none.
    pub fn find() -> Result<Self, String> {
        let names = library_names();
        let by_name = names.iter().map(PathBuf::from);
        let in_folders = folders()
            .into_iter()
            .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
            .filter(|path| path.is_file());
        by_name.chain(in_folders).find_map(|path| Self::open(&path)).ok_or_else(|| INSTALL.into())
    }

    fn open(path: &Path) -> Option<Self> {
        // SAFETY: the compiler's library runs no code at load that could break ours.
        let library = unsafe { Library::new(path) }.ok()?;
        // SAFETY: the types of the fields are those of nvrtc.h, unchanged since CUDA 11.1.
        let found = unsafe {
            let version_entry = *library
                .get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion\0")
                .ok()?;
            let (mut major, mut minor) = (0, 0);
            version_entry(&mut major, &mut minor);
            Self {
                path: path.to_owned(),
                version: (major, minor),
                create: *library.get(b"nvrtcCreateProgram\0").ok()?,
                compile: *library.get(b"nvrtcCompileProgram\0").ok()?,
                destroy: *library.get(b"nvrtcDestroyProgram\0").ok()?,
                log_size: *library.get(b"nvrtcGetProgramLogSize\0").ok()?,
                log: *library.get(b"nvrtcGetProgramLog\0").ok()?,
                cubin_size: *library.get(b"nvrtcGetCUBINSize\0").ok()?,
                cubin: *library.get(b"nvrtcGetCUBIN\0").ok()?,
                error: *library.get(b"nvrtcGetErrorString\0").ok()?,
                _library: library,
            }
        };
        (found.version.0 >= 12).then_some(found)
    }
    /// Name or path it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// `major.minor`.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles `source`; `headers` are pairs of name and text for its `#include` lines.
    ///
    /// # Errors
    /// The compiler's message.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Compiled, String> {
        let text = |s: &str| CString::new(s).map_err(|_| format!("{name}: zero byte in a source"));
        let (file, source) = (text(&format!("{name}.cu"))?, text(source)?);
        let mut names = Vec::new();
        let mut texts = Vec::new();
        for (header, body) in headers {
            names.push(text(header)?);
            texts.push(text(body)?);
        }
        let option_texts = options.iter().map(|o| text(o)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |all: &[CString]| all.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let (name_list, text_list, option_list) =
            (pointers(&names), pointers(&texts), pointers(&option_texts));
        let mut handle = std::ptr::null_mut();
        // SAFETY: all strings outlive the call and each list has the length given.
        let code = unsafe {
            (self.create)(
                &mut handle,
                source.as_ptr(),
                file.as_ptr(),
                names.len() as c_int,
                text_list.as_ptr(),
                name_list.as_ptr(),
            )
        };
        if code != 0 {
            return Err(format!("{name}: {}", self.text(code)));
        }
        let unit = Unit { nvrtc: self, handle };
        // SAFETY: a live program; the options outlive the call.
        let code =
            unsafe { (self.compile)(handle, option_list.len() as c_int, option_list.as_ptr()) };
        let log = String::from_utf8_lossy(&unit.bytes(self.log_size, self.log)).into_owned();
        let log = log.trim_end_matches('\0').trim().to_owned();
        const INVALID_OPTION: c_int = 5;
        match code {
            0 => {}
            INVALID_OPTION => {
                let version = self.version();
                let asked = options.join(" ");
                return Err(format!("NVRTC {version} refuses {asked}: install a newer one: {log}"));
            }
            _ => return Err(format!("{name}: {}: {log}", self.text(code))),
        }
        let cubin = unit.bytes(self.cubin_size, self.cubin);
        if cubin.is_empty() {
            return Err(format!("{name}: the compiler made no machine code"));
        }
        Ok(Compiled { cubin, log })
    }

    fn text(&self, code: c_int) -> String {
        // SAFETY: returns a static string for every code.
        let text = unsafe { (self.error)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: not null and terminated.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// A program under compilation, destroyed on every path.
struct Unit<'a> {
    nvrtc: &'a Nvrtc,
    handle: Program,
}

impl Unit<'_> {
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Vec<u8> {
        let mut len = 0;
        // SAFETY: a live program; writes one size.
        if unsafe { size(self.handle, &mut len) } != 0 {
            return Vec::new();
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: the buffer has the size that the compiler asked for.
        if unsafe { get(self.handle, bytes.as_mut_ptr().cast()) } != 0 {
            return Vec::new();
        }
        bytes
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        unsafe { (self.nvrtc.destroy)(&mut self.handle) };
    }
}

/// File names, newest first.
fn library_names() -> &'static [&'static str] {
    if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    }
}

/// Folders searched after the loader's own path.
fn folders() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable);
    for root in toolkits.chain([PathBuf::from("/usr/local/cuda")]) {
        found.extend(["lib64", "lib", "bin", "bin/x64"].map(|folder| root.join(folder)));
        found.push(root.join("targets/x86_64-linux/lib"));
    }
    let home = variable("HOME").or_else(|| variable("USERPROFILE"));
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable).collect();
    if let Some(home) = &home {
        prefixes.push(home.join(".local"));
        prefixes.extend(children(&home.join(".pyenv/versions")));
    }
    prefixes.extend(["/usr/local", "/usr", "/opt/conda", "/opt/venv"].map(PathBuf::from));
    for prefix in prefixes {
        let mut libraries = vec![prefix.join("Lib/site-packages")];
        for python in children(&prefix.join("lib")) {
            if python.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")) {
                libraries.extend(["site-packages", "dist-packages"].map(|l| python.join(l)));
            }
        }
        for library in libraries {
            let packages = ["cu13/lib", "cuda_nvrtc/lib", "cu13/bin/x86_64", "cuda_nvrtc/bin"];
            found.extend(packages.map(|package| library.join("nvidia").join(package)));
        }
    }
    found
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}
