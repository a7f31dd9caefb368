//! Figures of the cache.

use serde::Serialize;

/// Figures of a [`super::PrefixCache`]. Counts grow from its creation; the rest is as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrefixStats {
    /// Requests recorded.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Tokens that were not computed.
    pub hit_tokens: u64,
    /// Tokens that a cache of any size could have saved.
    pub matched_tokens: u64,
    /// Matched tokens computed again because their snapshot is no longer resident, or was not
    /// fetched.
    pub lost_evicted: u64,
    /// Matched tokens computed again because no snapshot was ever taken there.
    pub lost_no_snapshot: u64,
    /// The same, too few for a snapshot of their own.
    pub lost_below_fork: u64,
    /// Snapshots that lost their device copy to make room.
    pub device_evictions: u64,
    /// Snapshots that lost their host copy to make room.
    pub host_evictions: u64,
    /// Blocks copied to the host.
    pub written_blocks: u64,
    /// Blocks copied back.
    pub fetched_blocks: u64,
    /// Snapshots on the device.
    pub device_snapshots: usize,
    /// Snapshots on the host.
    pub host_snapshots: usize,
    /// Snapshots known but not resident.
    pub ghost_snapshots: usize,
    /// Tokens remembered without anything resident at or below them.
    pub ghost_tokens: usize,
    /// Different device blocks that snapshots hold.
    pub device_blocks: usize,
    /// Different host blocks that snapshots hold.
    pub host_blocks: usize,
}

impl PrefixStats {
    /// Share of prompt tokens that were not computed.
    pub fn hit_rate(&self) -> f64 {
        self.hit_tokens as f64 / (self.prompt_tokens as f64).max(1.0)
    }
}
