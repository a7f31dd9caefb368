//! The memory plan: what the engine will allocate, before anything is allocated. Pure.

use super::EngineOptions;
use super::transfers::Sizes;
use crate::backend::{Backend, DeviceInfo};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::kv::{BLOCK_TOKENS, KvType};
use crate::model::{Cache, PassShape, Workspace};
use serde::Serialize;
use std::fmt;

/// Longest context planned when the user names none; a longer one is a flag away.
const DEFAULT_CONTEXT: usize = 32_768 + 4_096;

/// Most device memory that the prefix cache takes unasked.
const DEFAULT_CACHE: u64 = 8 << 30;

/// The same where the device does not tell how much is free; at most three times what the slots need.
const UNKNOWN_CACHE: u64 = 256 << 20;

/// Context that slots rather share than have less each.
const SHARED_CONTEXT: usize = 8192;

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
    /// KV blocks, those of the prefix cache included.
    pub blocks: usize,
    /// Whether prefixes of earlier requests are kept.
    pub prefix_cache: bool,
    /// Bytes of one block over all layers.
    pub block_bytes: u64,
    /// Bytes of the recurrent state of one sequence.
    pub snapshot_bytes: u64,
    /// Blocks of one snapshot.
    pub snapshot_blocks: usize,
    /// Blocks in host memory.
    pub host_blocks: usize,
    /// Bytes of a page of one KV pool, and pools.
    pub(super) pages: (usize, usize),
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
        let snapshot_blocks = Cache::<B>::snapshot_blocks(config, options.kv_type);
        let pages = Cache::<B>::pages(config, options.kv_type);
        let sizes = Sizes { page_bytes: pages.0, pools: pages.1, snapshot_blocks };
        let workspace_bytes = Workspace::<B>::bytes(config, shape) as u64 + sizes.bytes();
        let reserve_bytes = (info.memory_bytes as f64 * RESERVE_SHARE) as u64;
        let fixed = weight_bytes + state_bytes + workspace_bytes + reserve_bytes;
        let for_kv = info.free_bytes.saturating_sub(fixed);
        let blocks_that_fit = match (info.free_bytes, block_bytes) {
            (0, _) | (_, 0) => usize::MAX,
            _ => (for_kv / block_bytes) as usize,
        };
        let context_that_fits = blocks_that_fit.saturating_mul(BLOCK_TOKENS);
        let context = match options.context {
            Some(0) => return Err(Error::invalid("ctx", "0 tokens")),
            Some(context) if context > config.max_positions => {
                return Err(Error::invalid(
                    "ctx",
                    format!("{context} exceeds the model's {}", config.max_positions),
                ));
            }
            Some(context) => context,
            None => {
                let fair = (context_that_fits / options.slots).max(SHARED_CONTEXT);
                DEFAULT_CONTEXT.min(config.max_positions).min(fair).min(context_that_fits)
            }
        };
        let prefix_cache = options.prefix_cache && block_bytes > 0;
        let one = context.div_ceil(BLOCK_TOKENS);
        let all = one * options.slots;
        let spare = blocks_that_fit.saturating_sub(all);
        let blocks = match options.cache_bytes {
            Some(bytes) => {
                let blocks = (bytes / block_bytes.max(1)) as usize;
                if blocks < one {
                    let least = one as u64 * block_bytes;
                    let what = format!("{bytes} bytes, a context of {context} takes {least}");
                    return Err(Error::invalid("cache-vram", what));
                }
                blocks
            }
            None if !prefix_cache => all.min(blocks_that_fit),
            // Without a figure from the device a modest amount.
            None if info.free_bytes == 0 => {
                all + ((UNKNOWN_CACHE / block_bytes) as usize).min(3 * (all + snapshot_blocks))
            }
            None => {
                let extra = (DEFAULT_CACHE / block_bytes) as usize;
                all.min(blocks_that_fit) + (spare / 10 * 9).min(extra)
            }
        };
        let kv_bytes = blocks as u64 * block_bytes;
        let host = if prefix_cache { options.host_cache_bytes / block_bytes } else { 0 };
        let one_bytes = one as u64 * block_bytes;
        let least = kv_bytes.max(one_bytes);
        if info.free_bytes > 0 && (fixed + least > info.free_bytes || context < BLOCK_TOKENS) {
            return Err(Error::OutOfMemory {
                what: format!("{} slots of {context} tokens", options.slots),
                needed: fixed + least,
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
            prefix_cache,
            block_bytes,
            snapshot_bytes: config.state_bytes() as u64,
            snapshot_blocks,
            host_blocks: host as usize,
            pages,
            max_rows,
            weight_bytes,
            kv_bytes,
            state_bytes,
            workspace_bytes,
            reserve_bytes,
            free_bytes: info.free_bytes,
        })
    }

    /// Sizes of the copies that the prefix cache asks for.
    pub(super) fn transfer_sizes(&self) -> Sizes {
        let (page_bytes, pools) = self.pages;
        Sizes { page_bytes, pools, snapshot_blocks: self.snapshot_blocks }
    }

    /// The prefix cache in a line.
    pub fn cache_line(&self) -> String {
        if !self.prefix_cache {
            return "prefix cache off".into();
        }
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let tokens = self.blocks * BLOCK_TOKENS;
        let mut line = format!(
            "prefix cache: blocks of {BLOCK_TOKENS} tokens, {:.1} KiB a token, ",
            kib(self.block_bytes) / BLOCK_TOKENS as f64
        );
        if self.snapshot_blocks > 0 {
            line += &format!("{:.1} MiB a snapshot, ", kib(self.snapshot_bytes) / 1024.0);
        }
        line += &format!("room for {tokens} tokens");
        if self.host_blocks > 0 {
            line += &format!(" and {} in host memory", self.host_blocks * BLOCK_TOKENS);
        }
        line
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
            "weights {:.0} MiB, kv {:.0} MiB ({} slots of up to {} tokens, {:?}), states {:.0} MiB, \
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
