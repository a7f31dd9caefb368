//! The memory plan: what the engine will allocate, before anything is allocated. Pure.

use super::EngineOptions;
use crate::backend::{Backend, DeviceInfo};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::kv::{BLOCK_TOKENS, KvType};
use crate::model::{Cache, PassShape, Workspace};
use serde::Serialize;
use std::fmt;

/// Longest context planned when the user names none; a longer one is a flag away.
const DEFAULT_CONTEXT: usize = 32_768 + 4_096;

/// Share of the device left alone: drivers spill silently when the last few percent fill up.
const RESERVE_SHARE: f64 = 0.03;

/// Sizes of everything on the device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// Longest sequence in tokens.
    pub context: usize,
    /// Sequences at once.
    pub slots: usize,
    /// Storage of keys and values.
    pub kv_type: KvType,
    /// KV blocks.
    pub blocks: usize,
    /// Most rows of a pass.
    pub max_rows: usize,
    /// Bytes of the weights on the device.
    pub weight_bytes: u64,
    /// Bytes of the KV pools.
    pub kv_bytes: u64,
    /// Bytes of recurrent and convolution states.
    pub state_bytes: u64,
    /// Bytes of activations and inputs.
    pub workspace_bytes: u64,
    /// Bytes left free.
    pub reserve_bytes: u64,
    /// Bytes that were free; 0 = unknown.
    pub free_bytes: u64,
}

impl MemoryPlan {
    /// Plans for a model on a device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the context that would fit, [`Error::Invalid`] for impossible
    /// options.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        info: &DeviceInfo,
        weight_bytes: u64,
        options: &EngineOptions,
    ) -> Result<Self> {
        if options.slots == 0 || options.slots > 256 {
            return Err(Error::invalid("slots", format!("{} is outside 1..=256", options.slots)));
        }
        let max_rows = options.max_rows.unwrap_or(info.max_rows).max(options.slots).max(1);
        let shape = PassShape { rows: max_rows, sequences: options.slots, outputs: options.slots };
        let block_bytes = Cache::<B>::block_bytes(config, options.kv_type) as u64;
        let state_bytes = (config.state_bytes() * options.slots) as u64;
        let workspace_bytes = Workspace::<B>::bytes(config, shape) as u64;
        let reserve_bytes = (info.memory_bytes as f64 * RESERVE_SHARE) as u64;
        let fixed = weight_bytes + state_bytes + workspace_bytes + reserve_bytes;
        let for_kv = info.free_bytes.saturating_sub(fixed);
        let blocks_that_fit = match (info.free_bytes, block_bytes) {
            (0, _) | (_, 0) => usize::MAX,
            _ => (for_kv / block_bytes) as usize,
        };
        let context_that_fits = (blocks_that_fit / options.slots).saturating_mul(BLOCK_TOKENS);
        let context = match options.context {
            Some(0) => return Err(Error::invalid("ctx", "0 tokens")),
            Some(context) if context > config.max_positions => {
                return Err(Error::invalid(
                    "ctx",
                    format!("{context} exceeds the model's {}", config.max_positions),
                ));
            }
            Some(context) => context,
            None => DEFAULT_CONTEXT.min(config.max_positions).min(context_that_fits),
        };
        let blocks = context.div_ceil(BLOCK_TOKENS) * options.slots;
        let kv_bytes = blocks as u64 * block_bytes;
        if info.free_bytes > 0 && (fixed + kv_bytes > info.free_bytes || context < BLOCK_TOKENS) {
            return Err(Error::OutOfMemory {
                what: format!("{} slots of {context} tokens", options.slots),
                needed: fixed + kv_bytes,
                available: info.free_bytes,
                advice: if context_that_fits >= BLOCK_TOKENS {
                    format!("--ctx {context_that_fits} would fit")
                } else {
                    "use fewer --slots or a smaller model".into()
                },
            });
        }
        Ok(Self {
            context,
            slots: options.slots,
            kv_type: options.kv_type,
            blocks,
            max_rows,
            weight_bytes,
            kv_bytes,
            state_bytes,
            workspace_bytes,
            reserve_bytes,
            free_bytes: info.free_bytes,
        })
    }

    /// Everything that will be allocated.
    pub fn total_bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes + self.state_bytes + self.workspace_bytes
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        write!(
            f,
            "weights {:.0} MiB, kv {:.0} MiB ({} slots x {} tokens, {:?}), states {:.0} MiB, \
             workspace {:.0} MiB, reserve {:.0} MiB",
            mib(self.weight_bytes),
            mib(self.kv_bytes),
            self.slots,
            self.context,
            self.kv_type,
            mib(self.state_bytes),
            mib(self.workspace_bytes),
            mib(self.reserve_bytes),
        )?;
        if self.free_bytes > 0 {
            write!(f, "; {:.0} of {:.0} MiB free", mib(self.total_bytes()), mib(self.free_bytes))?;
        }
        Ok(())
    }
}
