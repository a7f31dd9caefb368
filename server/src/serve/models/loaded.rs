//! A model that is ready to answer: its text side, and the engine on a thread of its own.

use crate::backend::{BackendChoice, BackendVisitor, with_backend};
use crate::models::{ModelSource, TextModel};
use crate::output::{note, size};
use crate::serve::constraint::SteeringTokens;
use crate::serve::grammar::Grammars;
use crate::serve::tools::ToolSyntax;
use anyhow::{Context, Result, anyhow};
use forge_core::Backend;
use forge_core::chat::ChatTemplate;
use forge_core::engine::service::{EngineClient, EngineWorker, service};
use forge_core::engine::{Engine, EngineOptions, MemoryPlan, SamplingParams};
use forge_core::model::load;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

/// How engines are made.
#[derive(Clone, Debug)]
pub(crate) struct EngineSettings {
    /// Where.
    pub(crate) backend: BackendChoice,
    /// Sizes.
    pub(crate) options: EngineOptions,
    /// Folder and size of the prefix cache's disk tier.
    pub(crate) disk: Option<(PathBuf, u64)>,
    /// Most requests before one engine.
    pub(crate) capacity: usize,
}

/// How far a load is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes done.
    pub(crate) done: AtomicU64,
    /// Bytes in all; 0 = not known yet.
    pub(crate) total: AtomicU64,
}

/// A model that is ready.
pub(crate) struct LoadedModel {
    /// Name that clients use.
    pub(crate) name: String,
    /// Checkpoint and tokenizer.
    pub(crate) text: Arc<TextModel>,
    /// Chat template.
    pub(crate) template: Option<ChatTemplate>,
    /// Form of its tool calls.
    pub(crate) tools: Option<ToolSyntax>,
    /// Tokens that steer its replies.
    pub(crate) steering: SteeringTokens,
    /// The engine.
    pub(crate) engine: EngineClient,
    /// Sizes of the engine.
    pub(crate) plan: MemoryPlan,
    /// Backend and device.
    pub(crate) device: String,
    grammars: OnceLock<Result<Grammars, String>>,
}

impl LoadedModel {
    /// Loads a model and starts its engine. Blocks until it is ready.
    ///
    /// # Errors
    /// Those of the readers, the plan and the device.
    pub(crate) fn start(
        name: &str,
        source: &ModelSource,
        settings: &EngineSettings,
        progress: &Arc<Progress>,
    ) -> Result<(Self, JoinHandle<()>)> {
        let text = Arc::new(TextModel::open(source)?);
        let template = text.template()?;
        let (engine, worker) = service(settings.capacity);
        let (ready, answer) = mpsc::channel();
        let (options, choice) = (settings.options.clone(), settings.backend.clone());
        let disk = settings.disk.clone();
        let (shared, progress) = (Arc::clone(&text), Arc::clone(progress));
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || {
            let ready_for_start = ready.clone();
            let start =
                Start { text: shared, options, disk, worker, progress, ready: ready_for_start };
            if let Err(error) = with_backend(&choice, start) {
                // Nobody listens any more if the engine had started.
                let _ = ready.send(Err(error));
            }
        })?;
        let started = answer.recv().unwrap_or_else(|_| Err(anyhow!("the engine's thread ended")));
        let (plan, device) = match started {
            Ok(started) => started,
            Err(error) => {
                let _ = thread.join();
                return Err(error);
            }
        };
        let sampling = SamplingParams::from_defaults(&text.checkpoint.generation);
        note(format_args!(
            "{name}: requests that say nothing else get temperature {}, top_k {}, top_p {}, min_p {}, \
             repetition_penalty {}",
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            sampling.repetition_penalty
        ));
        let model = Self {
            name: name.to_owned(),
            tools: template.as_ref().and_then(ToolSyntax::of),
            steering: SteeringTokens::of(&text.tokenizer, &text.stop_tokens),
            text,
            template,
            engine,
            plan,
            device,
            grammars: OnceLock::new(),
        };
        Ok((model, thread))
    }

    /// The compiler of grammars over this model's tokens, made when first needed.
    ///
    /// # Errors
    /// If the vocabulary does not allow grammars.
    pub(crate) fn grammars(&self) -> Result<&Grammars> {
        let made = self.grammars.get_or_init(|| {
            let stop = self.text.stop_tokens.first().context("the model has no stop token");
            let made = stop.and_then(|stop| Grammars::new(Arc::clone(&self.text), *stop));
            made.map_err(|error| format!("{error:#}"))
        });
        made.as_ref().map_err(|error| anyhow!("{error}"))
    }
}

/// What is left to do when the backend is open.
struct Start {
    text: Arc<TextModel>,
    options: EngineOptions,
    disk: Option<(PathBuf, u64)>,
    worker: EngineWorker,
    progress: Arc<Progress>,
    ready: mpsc::Sender<Result<(MemoryPlan, String)>>,
}

impl BackendVisitor for Start {
    type Output = ();

    fn visit<B: Backend>(self, backend: B) -> Result<()> {
        let checkpoint = &self.text.checkpoint;
        let info = backend.info();
        let device = format!("{} ({})", info.backend, info.name);
        let weights = checkpoint.device_bytes();
        let plan = MemoryPlan::new::<B>(&checkpoint.config, info, weights, &self.options)?;
        note(format_args!("{} on {device}: {plan}", checkpoint.name));
        self.progress.total.store(plan.weight_bytes, Ordering::Relaxed);
        let model = load(&backend, checkpoint, &mut |state| {
            self.progress.done.store(state.done_bytes, Ordering::Relaxed);
        })?;
        note(plan.cache_line());
        let mut engine = Engine::with_plan(backend, model, plan.clone())?;
        if let Some((folder, cap)) = self.disk {
            engine.attach_disk(&folder, checkpoint.fingerprint(), cap)?;
            let bytes = engine.stats().disk_bytes;
            note(format_args!("prefix cache: {} in {}", size(bytes), folder.display()));
        }
        let _ = self.ready.send(Ok((plan, device)));
        self.worker.run(engine);
        Ok(())
    }
}
