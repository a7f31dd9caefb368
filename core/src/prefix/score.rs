//! What a snapshot is worth: statistics by class, and the score that decides evictions.

use super::cache::{Entry, PrefixCache};
use super::{EvictionPolicy, Kind, SnapshotId, Tier};
use crate::engine::block_pool::BlockPool;
use crate::kv::BLOCK_TOKENS;
use std::collections::BTreeMap;

/// How many ways lead on from a snapshot, as far as requests showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// None yet.
    Leaf,
    /// One.
    Middle,
    /// Two or more.
    Fork,
}

impl Role {
    /// The role after so many continuations.
    pub(super) fn of(continuations: u32) -> Self {
        match continuations {
            0 => Self::Leaf,
            1 => Self::Middle,
            _ => Self::Fork,
        }
    }
}

/// Weight of the guess that a class starts with, in tenures.
const PRIOR_WEIGHT: f64 = 2.0;
/// Age at which recency and density weigh the same in the density rule. Simulated from 10 to 100 s the
/// choice makes no difference.
const DENSITY_AGE_SECONDS: f64 = 30.0;
/// Above every score of the density rule that is not a fork's.
const FORK_SCORE: f64 = 1e6;
/// Youngest age, so that what was just used has a finite score.
const MIN_AGE_SECONDS: f64 = 1e-3;

/// Uses and stays of one class of snapshots.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    demand: u32,
    tenures: u32,
}

/// How often snapshots of each class are used again.
///
/// A tenure is a stay in a role, from the moment a snapshot enters it or was last used in it. Demand
/// is credited to the deepest position that was ever saved, resident or not, so that evictions do
/// not bias the figure.
#[derive(Debug, Default)]
pub(super) struct Classes {
    classes: BTreeMap<(Kind, Role), Class>,
    leaves: Class,
}

impl Classes {
    /// A snapshot entered a role, or was used in it and waits for the next use.
    pub(super) fn begin(&mut self, kind: Kind, role: Role) {
        self.classes.entry((kind, role)).or_default().tenures += 1;
        if role == Role::Leaf && kind != Kind::Anchor {
            self.leaves.tenures += 1;
        }
    }

    /// A request resumed there, or would have if it were resident.
    pub(super) fn demand(&mut self, kind: Kind, role: Role) {
        self.classes.entry((kind, role)).or_default().demand += 1;
        if role == Role::Leaf && kind != Kind::Anchor {
            self.leaves.demand += 1;
        }
    }

    /// Chance that a snapshot of the class is used again.
    fn chance(&self, kind: Kind, role: Role) -> f64 {
        let class = self.classes.get(&(kind, role)).copied().unwrap_or_default();
        posterior(class, prior(kind, role))
    }

    /// Chance that some leaf is used again.
    fn leaf_chance(&self) -> f64 {
        posterior(self.leaves, prior(Kind::Generated, Role::Leaf))
    }
}

fn posterior(class: Class, prior: f64) -> f64 {
    (f64::from(class.demand) + PRIOR_WEIGHT * prior) / (f64::from(class.tenures) + PRIOR_WEIGHT)
}

/// The guess before anything was seen: forks and fresh ends are used again, what a conversation left
/// behind is not.
fn prior(kind: Kind, role: Role) -> f64 {
    match (kind, role) {
        (Kind::Anchor, _) => 0.05,
        (_, Role::Fork) => 0.9,
        (Kind::System | Kind::Branch, _) => 0.5,
        (_, Role::Leaf) => 0.7,
        (_, Role::Middle) => 0.1,
    }
}

impl PrefixCache {
    /// Worth of a resident snapshot for each block that dropping it frees from a tier; the lowest
    /// goes first. `freed` overrides the number of those blocks.
    pub(super) fn score(&self, id: SnapshotId, entry: &Entry, tier: Tier, freed: usize) -> f64 {
        let shallower = self.shallower(id, tier).map_or(0, |(_, position)| position);
        let saved = (entry.position - shallower).max(1) as f64;
        let age = (self.now() - entry.last_use).max(MIN_AGE_SECONDS);
        let role = Role::of(entry.continuations);
        let freed = freed as f64;
        let mut chance = self.classes.chance(entry.kind, role);
        if role != Role::Leaf && self.tree.resident_below(entry.node, tier) == 0 {
            // Conversations whose own snapshots are gone fall back to this one.
            chance = 1.0 - (1.0 - chance) * (1.0 - self.classes.leaf_chance());
        }
        match self.options().policy {
            EvictionPolicy::Reuse => chance * saved / (freed * age),
            EvictionPolicy::Density => {
                let protection = if role == Role::Fork { FORK_SCORE } else { 0.0 };
                let density = saved / BLOCK_TOKENS as f64 / freed;
                protection + chance * (DENSITY_AGE_SECONDS / age + density)
            }
        }
    }

    /// The nearest snapshot above one that is resident in a tier, and its position.
    pub(super) fn shallower(&self, id: SnapshotId, tier: Tier) -> Option<(SnapshotId, usize)> {
        let entry = self.entries.get(&id)?;
        self.tree.above(entry.node).find_map(|above| {
            let entry = self.entries.get(&above)?;
            entry.copies[tier.index()].as_ref().map(|_| (above, entry.position))
        })
    }

    /// Blocks that dropping a copy would free.
    pub(super) fn freed(entry: &Entry, tier: Tier, pool: &BlockPool) -> usize {
        entry.copies[tier.index()].as_ref().map_or(0, |copy| copy.exclusive(pool))
    }
}
