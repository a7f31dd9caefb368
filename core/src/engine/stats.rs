//! What the engine counts.

use crate::prefix::PrefixStats;
use serde::Serialize;
use std::time::Duration;

/// Buckets of a [`Histogram`]: bucket `i` ends at `FIRST * 2^(i/2)` seconds.
const BUCKETS: usize = 48;
const FIRST: f64 = 50e-6;

/// Times in buckets whose ends grow by the square root of two.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Values taken in.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
    /// The largest, in seconds.
    pub max: f64,
}

impl Histogram {
    /// Takes in a time.
    pub fn record(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let index = (2.0 * (seconds / FIRST).max(1.0).log2()).ceil() as usize;
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        self.counts[index.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.sum += seconds;
        self.max = self.max.max(seconds);
    }

    /// Mean in seconds; 0 without values.
    pub fn mean(&self) -> f64 {
        self.sum / (self.count as f64).max(1.0)
    }

    /// Upper bound in seconds of the smallest `share` of the values; 0 without values.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (end, count) in self.buckets() {
            seen += count;
            if seen >= wanted {
                return end.min(self.max);
            }
        }
        self.max
    }

    /// Ends of the buckets in seconds, and how many values each holds; the last one is open.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        self.counts.iter().enumerate().map(|(i, count)| (FIRST * 2f64.powf(i as f64 / 2.0), *count))
    }
}

/// Counters since the engine started, and what holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineStats {
    /// Requests that wait.
    pub waiting: usize,
    /// Sequences in slots.
    pub running: usize,
    /// State slots.
    pub slots: usize,
    /// Blocks of the device pool.
    pub blocks: usize,
    /// Blocks that nobody holds.
    pub free_blocks: usize,
    /// Bytes of a block over all layers.
    pub block_bytes: usize,
    /// Blocks of the host tier.
    pub host_blocks: usize,
    /// Blocks of one snapshot.
    pub snapshot_blocks: usize,
    /// Passes run.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prefilled_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Prompt tokens taken from the cache.
    pub reused_tokens: u64,
    /// Requests that ended, cancelled ones included.
    pub finished: u64,
    /// Sequences parked because blocks ran out.
    pub preemptions: u64,
    /// Those that had no room in host memory and are computed again.
    pub preemptions_recomputed: u64,
    /// Snapshots not taken because no block could be freed.
    pub snapshots_skipped: u64,
    /// Bytes copied to host memory.
    pub host_written_bytes: u64,
    /// Bytes copied back.
    pub host_fetched_bytes: u64,
    /// Bytes of snapshots on the disk.
    pub disk_bytes: u64,
    /// Bytes read from there.
    pub disk_read_bytes: u64,
    /// Failures to read or write there.
    pub disk_errors: u64,
    /// Times of passes that gave tokens.
    pub step_time: Histogram,
    /// Times between tokens of a sequence.
    pub inter_token: Histogram,
    /// Times from request to first token.
    pub first_token: Histogram,
    /// Prefix cache.
    pub prefix: PrefixStats,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_value() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.mean(), histogram.quantile(0.5)), (0.0, 0.0));
        for milliseconds in 1..=100 {
            histogram.record(Duration::from_millis(milliseconds));
        }
        assert!((histogram.mean() - 0.0505).abs() < 1e-9);
        let median = histogram.quantile(0.5);
        assert!((0.050..0.071).contains(&median), "{median}");
        assert_eq!(histogram.quantile(1.0), 0.1);
        assert_eq!(histogram.buckets().map(|(_, count)| count).sum::<u64>(), 100);
    }
}
