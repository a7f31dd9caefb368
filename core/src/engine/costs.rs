//! Measured costs of a pass, and what follows for the prompts mixed into it. Pure.

use std::collections::BTreeMap;

/// How much longer than alone a stream may wait for its tokens, on average, while prompts are
/// computed beside it.
const SLOWDOWN: f64 = 1.5;

/// Longest pass with prompt rows while others stream, in seconds, if a shorter one will do.
const LONGEST_CHUNK: f64 = 0.25;

/// Most passes without prompt rows between two with some: prompts always go on.
const MOST_APART: usize = 16;

/// Fewest prompt rows of a pass.
const SMALLEST: usize = 8;

/// Weight of a new measurement.
const NEWEST: f64 = 0.2;

/// Prompt rows of the coming passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Prompt rows of a pass.
    pub(super) rows: usize,
    /// One of so many passes has them.
    pub(super) every: usize,
}

/// Seconds of a pass by its rows.
#[derive(Clone, Debug, Default)]
pub(super) struct StepCosts {
    seconds: BTreeMap<usize, f64>,
}

impl StepCosts {
    /// Takes in a pass of `rows` rows.
    pub(super) fn observe(&mut self, rows: usize, seconds: f64) {
        let mean = self.seconds.entry(rows).or_insert(seconds);
        // A first pass may have paid for more than itself: a shorter one replaces it faster.
        let weight = if seconds < *mean { 0.5 } else { NEWEST };
        *mean += weight * (seconds - *mean);
    }

    /// Expected seconds of a pass: between measured ones a line, below them the nearest one's, above
    /// them the line through the last two, up to twice as many rows. `None` where nothing is known.
    pub(super) fn estimate(&self, rows: usize) -> Option<f64> {
        let below = self.seconds.range(..=rows).next_back();
        let above = self.seconds.range(rows..).next();
        match (below, above) {
            (Some((low, a)), Some((high, _))) if low == high => Some(*a),
            (Some((low, a)), Some((high, b))) => {
                let share = (rows - low) as f64 / (high - low) as f64;
                Some(a + (b - a) * share)
            }
            (Some((low, a)), None) if rows <= 2 * low => {
                let before = self.seconds.range(..low).next_back();
                let slope = before.map_or(0.0, |(rows, b)| (a - b) / (low - rows) as f64);
                Some(a + slope.max(0.0) * (rows - low) as f64)
            }
            (Some(_), None) => None,
            (None, Some((_, b))) => Some(*b),
            (None, None) => None,
        }
    }

    /// Prompt rows while `streams` sequences decode: the fastest way through prompts that slows the
    /// streams by no more than half on average. `totals` are the rows of a pass to choose from,
    /// ascending, streams included.
    pub(super) fn chunk(&self, streams: usize, totals: &[usize]) -> Chunk {
        let sizes: Vec<usize> =
            totals.iter().map(|t| t - streams.min(*t)).filter(|r| *r > 0).collect();
        let largest = sizes.last().copied().unwrap_or(1);
        // A few rows more or less than none cost the same.
        let smallest = sizes.iter().copied().find(|r| *r >= SMALLEST).unwrap_or(largest);
        if streams == 0 {
            return Chunk { rows: largest, every: 1 };
        }
        // What is not known is tried, in small steps.
        let (Some(alone), Some(_)) = (self.estimate(streams), self.estimate(smallest + streams))
        else {
            return Chunk { rows: smallest, every: 1 };
        };
        let mut best = (Chunk { rows: smallest, every: MOST_APART }, 0.0);
        for rows in sizes.iter().copied().filter(|rows| *rows >= smallest) {
            let Some(together) = self.estimate(rows + streams) else { continue };
            let every = ((together - alone) / ((SLOWDOWN - 1.0) * alone)).ceil().max(1.0);
            if every > MOST_APART as f64 || (together > LONGEST_CHUNK && rows > smallest) {
                continue;
            }
            let rate = rows as f64 / ((every - 1.0) * alone + together);
            if rate > best.1 {
                best = (Chunk { rows, every: every as usize }, rate);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 8] = [16, 32, 64, 128, 256, 512, 1024, 2048];

    /// Streams beside a long prompt: mean and largest gap, in passes of `streams` rows.
    fn gaps(cost: impl Fn(usize) -> f64, streams: usize, prompt: usize) -> (f64, f64, f64) {
        let mut costs = StepCosts::default();
        for _ in 0..20 {
            costs.observe(streams, cost(streams));
        }
        let (mut rest, mut since, mut total, mut longest, mut steps) = (prompt, 0, 0.0, 0.0f64, 0);
        let mut longest_chunk = 0.0f64;
        while rest > 0 {
            let chunk = costs.chunk(streams, &SIZES);
            since += 1;
            let mut rows = streams;
            if since >= chunk.every {
                rows += chunk.rows.min(rest);
                rest -= chunk.rows.min(rest);
                since = 0;
                longest_chunk = longest_chunk.max(cost(rows));
            }
            costs.observe(rows, cost(rows));
            total += cost(rows);
            longest = longest.max(cost(rows));
            steps += 1;
        }
        (total / f64::from(steps) / cost(streams), longest / longest_chunk, total)
    }

    #[test]
    fn a_long_prompt_slows_streams_by_half_at_most() {
        // A card: weights are read once a pass, rows are nearly free at first, then 54 us each.
        let card = |rows: usize| (2.3e-3f64).max(rows as f64 * 54e-6) + rows as f64 * 2e-6;
        // A processor: every row costs.
        let processor = |rows: usize| 2e-3 + rows as f64 * 4e-3;
        for (name, mean, longest, total) in [
            {
                let g = gaps(card, 3, 16_384);
                ("card", g.0, g.1, g.2)
            },
            {
                let g = gaps(processor, 3, 2_000);
                ("processor", g.0, g.1, g.2)
            },
        ] {
            println!(
                "{name}: {mean:.2} of the time alone, gaps up to {longest:.2} chunks, {total:.2} s"
            );
            assert!(mean <= 1.55, "{name}: {mean}");
            assert!(longest <= 2.0, "{name}: {longest}");
        }
        // On the card the prompt itself is not held up by more than half either.
        assert!(gaps(card, 3, 16_384).2 < 1.5 * 16_384.0 * 56e-6 + 0.1);
    }

    #[test]
    fn without_streams_chunks_are_as_large_as_they_can_be() {
        assert_eq!(StepCosts::default().chunk(0, &SIZES), Chunk { rows: 2048, every: 1 });
        assert_eq!(StepCosts::default().chunk(2, &SIZES), Chunk { rows: 14, every: 1 });
    }

    #[test]
    fn estimates_follow_the_neighbours() {
        let mut costs = StepCosts::default();
        assert_eq!(costs.estimate(5), None);
        costs.observe(10, 1.0);
        costs.observe(20, 3.0);
        assert_eq!(costs.estimate(1), Some(1.0));
        assert_eq!(costs.estimate(15), Some(2.0));
        assert_eq!(costs.estimate(40), Some(7.0));
        assert_eq!(costs.estimate(41), None);
    }
}
