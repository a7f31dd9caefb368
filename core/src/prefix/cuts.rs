//! Where a prompt is cut for snapshots.

use super::{Boundary, Kind, Match, PrefixCache};

/// Two cuts nearer than this are one if the earlier is an anchor.
const MERGE_TOKENS: usize = 64;

impl PrefixCache {
    /// Positions behind `hit`, the position that prefill really starts from, at which it must stop
    /// and save a snapshot, in order: the request's own `boundaries`, a fork that earlier requests
    /// showed, and anchors at multiples of the interval. Positions beyond the prompt are left out.
    pub fn cuts(&self, found: &Match, hit: usize, boundaries: &[Boundary]) -> Vec<Boundary> {
        let options = self.options();
        let end = found.prompt_len;
        let mut cuts: Vec<Boundary> = boundaries.to_vec();
        let fork = found.limit();
        if found.forks && fork.saturating_sub(hit) >= options.fork_minimum {
            cuts.push(Boundary { position: fork, kind: Kind::Branch });
        }
        let interval = options.anchor_interval.max(1);
        let anchors = (hit / interval + 1..).map(|index| index.saturating_mul(interval));
        cuts.extend(
            anchors
                .take_while(|position| *position < end)
                .map(|position| Boundary { position, kind: Kind::Anchor }),
        );
        cuts.retain(|cut| cut.position > hit && cut.position <= end);
        // At one position the kind with the best prospects names the snapshot.
        cuts.sort_by_key(|cut| (cut.position, std::cmp::Reverse(cut.kind)));
        cuts.dedup_by_key(|cut| cut.position);
        let mut kept: Vec<Boundary> = Vec::with_capacity(cuts.len());
        for cut in cuts {
            kept.pop_if(|last| {
                last.kind == Kind::Anchor && cut.position - last.position < MERGE_TOKENS
            });
            kept.push(cut);
        }
        kept
    }
}
