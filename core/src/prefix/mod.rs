//! Prefix cache for hybrid models: which saved position a new prompt can resume from, what to save,
//! and what to drop. Pure: it moves ids of blocks, its caller moves bytes and tells the time.
//!
//! A recurrent state can only be resumed where a copy was saved. So snapshots are taken at the few
//! positions where later prompts really part: ends of messages, learned forks, sparse anchors.
//! Positions are exact in tokens; nothing is rounded to blocks.
//!
//! **One unit.** A block of the one [`BlockPool`] holds 16 tokens of keys and values over all
//! layers, or a piece of a saved state: a snapshot's state lies in [`PrefixOptions::snapshot_blocks`]
//! ordinary blocks, in any order. Keys, values and states so share one budget in bytes without
//! slabs, conversion or fragmentation.
//!
//! **Keys and values belong to snapshots.** Each resident snapshot holds references to the blocks
//! that cover `[0, position)`; snapshots on one path share them through the reference counts. What
//! is kept is thus the union of the paths to resident snapshots, by construction. The last block
//! may be partial. The sequence that saved the snapshot may go on writing behind the position; any
//! other one that resumes copies this block first ([`Lease::partial`]).
//!
//! **Two tiers.** A snapshot is resident on the device, on the host, on both, or is a ghost: its
//! tokens stay in the tree so that forks are still learned and losses can be named.
//!
//! A model without recurrent layers (`snapshot_blocks == 0`) can resume anywhere on a resident path;
//! the same tree then finds the longest match.
//!
//! A request's way: [`PrefixCache::lookup`], perhaps [`PrefixCache::begin_fetch`],
//! [`PrefixCache::acquire`], [`PrefixCache::record`] once, prefill with [`PrefixCache::cuts`], and
//! [`PrefixCache::insert`] at each cut and at the end.

mod cache;
mod cuts;
mod evict;
mod holdings;
mod reserve;
mod score;
pub mod simulate;
mod stats;
mod transfer;
mod tree;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use cache::PrefixCache;
pub use stats::PrefixStats;
pub use transfer::{Restore, Transfer};

#[cfg(doc)]
use crate::engine::block_pool::BlockPool;
use crate::ids::{BlockId, TokenId};
use serde::{Deserialize, Serialize};

/// Settings of a [`PrefixCache`].
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixOptions {
    /// Blocks that the state of one snapshot takes; 0 for a model without recurrent layers.
    pub snapshot_blocks: usize,
    /// Blocks of the host tier; 0 = no such tier.
    pub host_blocks: usize,
    /// Fewest tokens that a snapshot at a learned fork must save.
    pub fork_minimum: usize,
    /// Tokens between snapshots in long stretches without a boundary.
    pub anchor_interval: usize,
    /// Most tokens remembered without anything resident at or below them.
    pub ghost_tokens: usize,
    /// What is dropped first.
    pub policy: EvictionPolicy,
}

impl PrefixOptions {
    /// The usual settings. Without a host tier recency thrashes under cyclic arrivals, so the
    /// density rule is chosen.
    pub fn new(snapshot_blocks: usize, host_blocks: usize) -> Self {
        let policy = if host_blocks == 0 { EvictionPolicy::Density } else { EvictionPolicy::Reuse };
        Self {
            snapshot_blocks,
            host_blocks,
            fork_minimum: 64,
            anchor_interval: 4096,
            ghost_tokens: 4 << 20,
            policy,
        }
    }
}

/// What is dropped first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionPolicy {
    /// Lowest `p * d / (bytes * age)`: chance of another use, tokens that a use saves, bytes that
    /// dropping frees, time since the last use.
    Reuse,
    /// Lowest `p * (30 s / age + kv_bytes(d) / bytes)`, forks last: keeps a stable part of a set that
    /// is too large, where recency would keep nothing.
    Density,
}

/// Why a position is worth a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A regular distance into a long stretch.
    Anchor,
    /// A fork that an earlier request showed.
    Branch,
    /// End of an answer.
    Generated,
    /// End of the last message, before the generation prompt.
    User,
    /// End of the system message and tools.
    System,
    /// A preempted sequence: stays on the host until it is taken.
    Parked,
}

/// A position at which prefill stops and saves a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Tokens before it.
    pub position: usize,
    /// Why.
    pub kind: Kind,
}

/// A snapshot, resident or not. Ids are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub(crate) u64);

/// Where a copy lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Device memory.
    Device,
    /// Host memory.
    Host,
}

impl Tier {
    const COUNT: usize = 2;

    const fn index(self) -> usize {
        self as usize
    }
}

/// A position that can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Snapshot.
    pub id: SnapshotId,
    /// Tokens that need not be computed. Equal to the snapshot's position, except for models
    /// without recurrent layers, where it may be less.
    pub position: usize,
}

/// What the cache knows about a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Tokens of the prompt.
    pub prompt_len: usize,
    /// Tokens of the prompt that were seen before, resident or not.
    pub known: usize,
    /// Something else was seen behind `known`, or the whole prompt is known.
    pub forks: bool,
    /// Deepest position on the device.
    pub device: Option<Found>,
    /// Deepest position on the host.
    pub host: Option<Found>,
    /// Deepest position that was ever saved.
    pub taken: Option<Found>,
}

impl Match {
    /// Tokens that need not be computed if nothing is fetched.
    pub fn hit(&self) -> usize {
        self.device.map_or(0, |found| found.position)
    }

    /// Most tokens that a cache of any size could save: at least one token is always computed, which
    /// gives the logits.
    pub fn limit(&self) -> usize {
        self.known.min(self.prompt_len.saturating_sub(1))
    }
}

/// The right to read a snapshot on the device. It holds references to every block it names, so
/// nothing is reused while it lives; give it to [`PrefixCache::release_lease`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "blocks stay held until the lease is released"]
pub struct Lease {
    /// Snapshot.
    pub id: SnapshotId,
    /// Tokens covered.
    pub position: usize,
    /// Full blocks, shared and read-only. Take them (`std::mem::take`) to make them the resuming
    /// sequence's own references; what is left here is released with the lease.
    pub kv: Vec<BlockId>,
    /// The block that holds the last `position % 16` tokens: copy it to a block of the sequence
    /// before anything is written.
    pub partial: Option<BlockId>,
    /// The state's blocks, in order.
    pub state: Vec<BlockId>,
}

/// Measured costs that decide whether a fetch pays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Speed of copies from the host.
    pub bytes_per_second: f64,
    /// Time to compute a prompt token.
    pub seconds_per_token: f64,
}

/// A snapshot in host memory, as a disk tier needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentSnapshot<'a> {
    /// Snapshot.
    pub id: SnapshotId,
    /// Salt of its tree.
    pub salt: u64,
    /// Tokens before its position.
    pub tokens: Vec<TokenId>,
    /// Why it was taken.
    pub kind: Kind,
    /// Host blocks with keys and values of `tokens`.
    pub kv: &'a [BlockId],
    /// Host blocks of the state.
    pub state: &'a [BlockId],
}
