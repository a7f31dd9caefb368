//! The device: context, stream, loaded kernels, staging and workspace.

use crate::compile::{self, Capability, Cubin};
use crate::ffi::{Attribute, Context, Driver, Function, Memory, Module, Stream};
use crate::memory::{Arena, Buffer, Ring};
use crate::pass::Kernel;
use crate::{Options, sources};
use forge_core::{DeviceInfo, Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Dynamic shared memory that needs no permission.
const FREE_SHARED_BYTES: u32 = 48 * 1024;

/// Everything that exists once per opened device.
pub(crate) struct Device {
    // Fields drop in order: what belongs to the context goes before it.
    pub(crate) modules: Modules,
    staging: Mutex<Staging>,
    arenas: Mutex<Arenas>,
    pub(crate) stream: Stream,
    pub(crate) context: Arc<Context>,
    pub(crate) info: DeviceInfo,
    pub(crate) sms: u32,
    pub(crate) capability: Capability,
    pub(crate) max_shared_bytes: u32,
    pub(crate) overlap: bool,
}

/// Pinned memory between host and device.
pub(crate) struct Staging {
    /// Small copies: step inputs.
    pub(crate) inputs: Ring,
    /// Weights.
    pub(crate) uploads: Ring,
    /// Results.
    pub(crate) outputs: Ring,
}

/// Workspace of the open recording.
pub(crate) struct Arenas {
    pub(crate) op: Arena,
}

impl Device {
    pub(crate) fn open(driver: Arc<Driver>, options: &Options) -> Result<Self> {
        let handle = driver.device(options.device)?;
        let name = driver.name(handle);
        let attribute = |attribute| u32::try_from(driver.attribute(handle, attribute)).unwrap_or(0);
        let capability = attribute(Attribute::Major) * 10 + attribute(Attribute::Minor);
        if capability < 80 {
            return Err(Error::unsupported(
                format!("{name} (compute capability {}.{})", capability / 10, capability % 10),
                "8.0 (Ampere) or newer is needed",
            ));
        }
        let context = Context::open(driver.clone(), handle)?;
        let stream = Stream::new(&context)?;
        let default_cache = compile::default_cache();
        let cache = options.cache.as_deref().or(default_cache.as_deref());
        let sources = sources::all();
        let cubins = compile::all(&sources, capability, cache)?;
        let modules = Modules::load(&context, &cubins)?;
        let (free_bytes, memory_bytes) = context.memory()?;
        // Two transfers per clock; both figures are 0 where the driver no longer tells.
        let bandwidth = 2.0
            * 1e3
            * f64::from(attribute(Attribute::MemoryClockKhz))
            * f64::from(attribute(Attribute::MemoryBusBits))
            / 8.0;
        let info = DeviceInfo {
            backend: "cuda",
            name,
            memory_bytes,
            free_bytes,
            bandwidth,
            units: attribute(Attribute::Sms) as usize,
            row_buckets: (1..=8).chain([16, 32, 64, 128, 256, 512, 1024]).collect(),
            max_rows: 1024,
        };
        tracing::info!(
            device = info.name,
            capability,
            sms = info.units,
            free_mib = free_bytes >> 20,
            driver = driver.version(),
            "CUDA device opened"
        );
        let staging = Staging {
            inputs: Ring::new(&context, 4, 256 << 10),
            uploads: Ring::new(&context, 2, 32 << 20),
            outputs: Ring::new(&context, 2, 4 << 20),
        };
        Ok(Self {
            modules,
            staging: Mutex::new(staging),
            arenas: Mutex::new(Arenas { op: Arena::new() }),
            stream,
            info,
            sms: attribute(Attribute::Sms),
            capability,
            max_shared_bytes: attribute(Attribute::SharedBytesOptIn),
            overlap: context.can_overlap(),
            context,
        })
    }
    /// Device memory with a copy of `bytes`; the copy is ordered on the stream.
    pub(crate) fn upload(&self, stage: &str, bytes: &[u8]) -> Result<Buffer> {
        let buffer = Buffer::device(&self.context, bytes.len())?;
        self.upload_into(stage, bytes, &buffer, 0)?;
        Ok(buffer)
    }
    /// Copies `bytes` to `offset` of `buffer` through pinned memory; they are taken before the call
    /// returns.
    pub(crate) fn upload_into(
        &self,
        stage: &str,
        bytes: &[u8],
        buffer: &Buffer,
        offset: usize,
    ) -> Result<()> {
        self.staging().uploads.write(stage, &self.stream, bytes, buffer.memory(), offset)
    }
    /// Host memory that the device reads over the bus, filled with `bytes`. Where the system grants
    /// no pinned memory the bytes go to the device, which is logged.
    pub(crate) fn upload_mapped(&self, stage: &str, bytes: &[u8]) -> Result<Buffer> {
        match Memory::pinned(&self.context, bytes.len()) {
            Ok(mut memory) => {
                memory.fill(0, bytes)?;
                Ok(Buffer::new(memory))
            }
            Err(error) if self.context.fault().is_some() => Err(error),
            Err(error) => {
                tracing::warn!(bytes = bytes.len(), %error, "table kept in device memory");
                self.upload(stage, bytes)
            }
        }
    }
    pub(crate) fn arenas(&self) -> MutexGuard<'_, Arenas> {
        self.arenas.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
    pub(crate) fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Loaded kernels by file and name.
pub(crate) struct Modules {
    files: HashMap<&'static str, HashMap<String, Loaded>>,
}

/// A kernel ready to launch.
pub(crate) struct Loaded {
    name: String,
    pub(crate) function: Function,
    pub(crate) parameters: Option<Vec<usize>>,
    /// Dynamic shared memory that the driver already allows.
    allowed_shared: AtomicU32,
    module: Arc<Module>,
}

impl Modules {
    fn load(context: &Arc<Context>, cubins: &[Cubin]) -> Result<Self> {
        let mut files = HashMap::new();
        for cubin in cubins {
            let module = Arc::new(Module::load(context, cubin.file, &cubin.image)?);
            let mut kernels = HashMap::new();
            for entry in &cubin.entries {
                let loaded = Loaded {
                    name: entry.name.clone(),
                    function: module.function(&entry.name)?,
                    parameters: entry.parameters.clone(),
                    allowed_shared: AtomicU32::new(FREE_SHARED_BYTES),
                    module: module.clone(),
                };
                kernels.insert(entry.name.clone(), loaded);
            }
            files.insert(cubin.file, kernels);
        }
        Ok(Self { files })
    }
    pub(crate) fn kernel(&self, op: &str, kernel: Kernel) -> Result<&Loaded> {
        self.files.get(kernel.file).and_then(|file| file.get(kernel.entry)).ok_or_else(|| {
            Error::device(op, format!("no kernel {} in {}.cu", kernel.entry, kernel.file))
        })
    }
}

impl Loaded {
    pub(crate) fn allow_shared(&self, op: &str, bytes: u32) -> Result<()> {
        if bytes <= self.allowed_shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.module.allow_shared(&self.name, &self.function, bytes).map_err(|error| {
            Error::device(op, format!("{bytes} bytes of shared memory: {error}"))
        })?;
        self.allowed_shared.store(bytes, Ordering::Relaxed);
        Ok(())
    }
    pub(crate) fn blocks_per_sm(&self, op: &str, threads: u32, shared: u32) -> Result<u32> {
        self.module
            .blocks_per_sm(&self.name, &self.function, threads, shared)
            .map_err(|error| Error::device(op, error))
    }
}
