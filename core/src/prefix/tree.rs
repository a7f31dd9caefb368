//! Radix tree over token ids. It knows which positions were ever saved and where something is
//! resident; blocks are none of its business.

use super::{SnapshotId, Tier};
use crate::ids::TokenId;
use std::collections::BTreeMap;

/// A node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(usize);

#[derive(Debug)]
struct Node {
    salt: u64,
    parent: Option<NodeId>,
    /// Tokens between the parent's position and this one.
    edge: Vec<TokenId>,
    /// Tokens from the root to here.
    end: usize,
    children: BTreeMap<TokenId, NodeId>,
    snapshot: Option<SnapshotId>,
    /// Whether `snapshot` is resident, by tier.
    here: [bool; Tier::COUNT],
    /// Resident snapshots here and below, by tier.
    resident: [u32; Tier::COUNT],
    last_use: f64,
}

impl Node {
    fn is_ghost(&self) -> bool {
        self.resident.iter().all(|count| *count == 0)
    }
}

/// How far a prompt is known.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Nodes whose whole edge matched, shallow first, without the root.
    pub(super) path: Vec<NodeId>,
    /// The node on whose edge the match ended.
    partial: Option<NodeId>,
    /// Tokens matched.
    pub(super) matched: usize,
    /// The tree goes on after the match.
    pub(super) continues: bool,
}

/// The tree: one root a salt.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    roots: BTreeMap<u64, NodeId>,
    ghost_tokens: usize,
}

impl Tree {
    /// Tokens on edges with nothing resident at or below them.
    pub(super) fn ghost_tokens(&self) -> usize {
        self.ghost_tokens
    }

    #[allow(clippy::expect_used, reason = "ids are handed out and taken back by this file alone")]
    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0].as_ref().expect("a live node")
    }

    #[allow(clippy::expect_used, reason = "ids are handed out and taken back by this file alone")]
    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.0].as_mut().expect("a live node")
    }

    /// The snapshot ever taken at a node's end.
    pub(super) fn snapshot(&self, id: NodeId) -> Option<SnapshotId> {
        self.node(id).snapshot
    }

    /// Names the snapshot at a node's end.
    pub(super) fn set_snapshot(&mut self, id: NodeId, snapshot: SnapshotId) {
        self.node_mut(id).snapshot = Some(snapshot);
    }

    /// Whether the tree goes on below a node.
    pub(super) fn has_children(&self, id: NodeId) -> bool {
        !self.node(id).children.is_empty()
    }

    /// Snapshots resident strictly below a node.
    pub(super) fn resident_below(&self, id: NodeId, tier: Tier) -> u32 {
        let node = self.node(id);
        node.resident[tier.index()] - u32::from(node.here[tier.index()])
    }

    /// Follows `tokens` as far as they are known.
    pub(super) fn walk(&self, salt: u64, tokens: &[TokenId]) -> Walk {
        let mut walk = Walk::default();
        let Some(mut at) = self.roots.get(&salt).copied() else { return walk };
        loop {
            let node = self.node(at);
            let rest = &tokens[walk.matched..];
            let child = rest.first().and_then(|token| node.children.get(token)).copied();
            let Some(child) = child else {
                walk.continues = !node.children.is_empty();
                return walk;
            };
            let edge = &self.node(child).edge;
            let common = edge.iter().zip(rest).take_while(|(a, b)| a == b).count();
            walk.matched += common;
            if common < edge.len() {
                walk.partial = Some(child);
                walk.continues = true;
                return walk;
            }
            walk.path.push(child);
            at = child;
        }
    }

    /// The resident snapshot that shares most tokens with the walked prompt, and how many.
    pub(super) fn cover(&self, walk: &Walk, tier: Tier) -> Option<(SnapshotId, usize)> {
        let held = |id: &NodeId| self.node(*id).resident[tier.index()] > 0;
        if let Some(partial) = walk.partial.filter(held) {
            return Some((self.resident_in(partial, tier)?, walk.matched));
        }
        if let Some(deepest) = walk.path.iter().rev().copied().find(held) {
            return Some((self.resident_in(deepest, tier)?, self.node(deepest).end));
        }
        None
    }

    /// Some resident snapshot at or below a node.
    fn resident_in(&self, mut at: NodeId, tier: Tier) -> Option<SnapshotId> {
        loop {
            let node = self.node(at);
            if node.here[tier.index()] {
                return node.snapshot;
            }
            at = node
                .children
                .values()
                .copied()
                .find(|child| self.node(*child).resident[tier.index()] > 0)?;
        }
    }

    /// Snapshots ever taken above a node, deepest first.
    pub(super) fn above(&self, id: NodeId) -> impl Iterator<Item = SnapshotId> {
        let mut at = self.node(id).parent;
        std::iter::from_fn(move || {
            let node = self.node(at?);
            at = node.parent;
            Some(node.snapshot)
        })
        .flatten()
    }

    /// The node exactly at the end of `tokens`, made if need be.
    pub(super) fn ensure(&mut self, salt: u64, tokens: &[TokenId], now: f64) -> NodeId {
        let root = match self.roots.get(&salt) {
            Some(root) => *root,
            None => {
                let root = self.add(salt, None, Vec::new(), 0, now);
                self.roots.insert(salt, root);
                root
            }
        };
        let walk = self.walk(salt, tokens);
        let mut at = walk.path.last().copied().unwrap_or(root);
        if let Some(partial) = walk.partial {
            at = self.split(partial, walk.matched - self.node(at).end);
        }
        if walk.matched < tokens.len() {
            let edge = tokens[walk.matched..].to_vec();
            at = self.add(salt, Some(at), edge, tokens.len(), now);
        }
        self.touch(at, now);
        at
    }

    /// Refreshes a node.
    pub(super) fn touch(&mut self, id: NodeId, now: f64) {
        self.node_mut(id).last_use = now;
    }

    fn add(
        &mut self,
        salt: u64,
        parent: Option<NodeId>,
        edge: Vec<TokenId>,
        end: usize,
        now: f64,
    ) -> NodeId {
        self.ghost_tokens += edge.len();
        let first = edge.first().copied();
        let id = self.place(Node {
            salt,
            parent,
            edge,
            end,
            children: BTreeMap::new(),
            snapshot: None,
            here: [false; Tier::COUNT],
            resident: [0; Tier::COUNT],
            last_use: now,
        });
        if let (Some(parent), Some(first)) = (parent, first) {
            self.node_mut(parent).children.insert(first, id);
        }
        id
    }

    fn place(&mut self, node: Node) -> NodeId {
        match self.vacant.pop() {
            Some(id) => {
                self.nodes[id.0] = Some(node);
                id
            }
            None => {
                self.nodes.push(Some(node));
                NodeId(self.nodes.len() - 1)
            }
        }
    }

    /// Cuts a node's edge after `offset` tokens; returns the new upper node.
    fn split(&mut self, lower: NodeId, offset: usize) -> NodeId {
        let node = self.node_mut(lower);
        let rest = node.edge.split_off(offset);
        let edge = std::mem::replace(&mut node.edge, rest);
        let upper = Node {
            salt: node.salt,
            parent: node.parent,
            end: node.end - node.edge.len(),
            children: BTreeMap::from([(node.edge[0], lower)]),
            snapshot: None,
            here: [false; Tier::COUNT],
            resident: node.resident,
            last_use: node.last_use,
            edge,
        };
        let (parent, first) = (upper.parent, upper.edge[0]);
        let upper = self.place(upper);
        self.node_mut(lower).parent = Some(upper);
        if let Some(parent) = parent {
            self.node_mut(parent).children.insert(first, upper);
        }
        upper
    }

    /// Notes that the snapshot of a node came into or left a tier.
    pub(super) fn set_resident(&mut self, id: NodeId, tier: Tier, resident: bool) {
        let tier = tier.index();
        let node = self.node_mut(id);
        if node.here[tier] == resident {
            return;
        }
        node.here[tier] = resident;
        let mut at = Some(id);
        while let Some(id) = at {
            let node = self.node_mut(id);
            let (before, edge) = (node.is_ghost(), node.edge.len());
            node.resident[tier] =
                if resident { node.resident[tier] + 1 } else { node.resident[tier] - 1 };
            let after = node.is_ghost();
            at = node.parent;
            match (before, after) {
                (true, false) => self.ghost_tokens -= edge,
                (false, true) => self.ghost_tokens += edge,
                _ => {}
            }
        }
    }

    /// Salt and tokens from the root to a node.
    pub(super) fn tokens(&self, id: NodeId) -> (u64, Vec<TokenId>) {
        let mut edges = Vec::new();
        let mut at = Some(id);
        while let Some(id) = at {
            edges.push(&self.node(id).edge);
            at = self.node(id).parent;
        }
        (self.node(id).salt, edges.into_iter().rev().flatten().copied().collect())
    }

    /// Forgets ghost leaves, longest unused first, until at most `cap` ghost tokens are left.
    /// Returns the snapshots that were forgotten.
    pub(super) fn trim(&mut self, cap: usize) -> Vec<SnapshotId> {
        let mut forgotten = Vec::new();
        while self.ghost_tokens > cap {
            let mut leaves: Vec<(f64, NodeId)> = (self.nodes.iter().enumerate())
                .filter_map(|(index, node)| Some((NodeId(index), node.as_ref()?)))
                .filter(|(_, node)| node.parent.is_some() && node.children.is_empty())
                .filter(|(_, node)| node.is_ghost())
                .map(|(id, node)| (node.last_use, id))
                .collect();
            if leaves.is_empty() {
                break;
            }
            leaves.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (_, leaf) in leaves {
                if self.ghost_tokens <= cap {
                    break;
                }
                forgotten.extend(self.remove_leaf(leaf));
            }
        }
        forgotten
    }

    fn remove_leaf(&mut self, leaf: NodeId) -> Option<SnapshotId> {
        let node = self.nodes[leaf.0].take()?;
        self.vacant.push(leaf);
        self.ghost_tokens -= node.edge.len();
        if let (Some(parent), Some(first)) = (node.parent, node.edge.first()) {
            self.node_mut(parent).children.remove(first);
            self.tidy(parent);
        }
        node.snapshot
    }

    /// Joins a node that no longer branches with its child, and drops an empty root.
    fn tidy(&mut self, id: NodeId) {
        let node = self.node(id);
        if node.snapshot.is_some() {
            return;
        }
        let only = node.children.values().next().copied();
        match (node.parent, only, node.children.len()) {
            (Some(parent), Some(child), 1) => {
                let Some(upper) = self.nodes[id.0].take() else { return };
                self.vacant.push(id);
                let first = upper.edge[0];
                let lower = self.node_mut(child);
                let mut edge = upper.edge;
                edge.append(&mut lower.edge);
                lower.edge = edge;
                lower.parent = Some(parent);
                self.node_mut(parent).children.insert(first, child);
            }
            (None, None, _) => {
                let salt = node.salt;
                self.nodes[id.0] = None;
                self.vacant.push(id);
                self.roots.remove(&salt);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
impl Tree {
    /// Recounts everything that is counted incrementally.
    pub(super) fn check(&self) {
        let live = || self.nodes.iter().enumerate().filter_map(|(i, n)| Some((i, n.as_ref()?)));
        let mut ghosts = 0;
        for (index, node) in live() {
            ghosts += if node.is_ghost() { node.edge.len() } else { 0 };
            let start = node.parent.map_or(0, |parent| self.node(parent).end);
            assert_eq!(node.end, start + node.edge.len());
            for tier in 0..Tier::COUNT {
                let below: u32 = node.children.values().map(|c| self.node(*c).resident[tier]).sum();
                assert_eq!(node.resident[tier], below + u32::from(node.here[tier]));
            }
            for (first, child) in &node.children {
                assert_eq!(self.node(*child).parent, Some(NodeId(index)));
                assert_eq!(self.node(*child).edge.first(), Some(first));
            }
        }
        assert_eq!(ghosts, self.ghost_tokens);
        assert_eq!(live().filter(|(_, n)| n.parent.is_none()).count(), self.roots.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    #[test]
    fn edges_split_where_paths_part() {
        let mut tree = Tree::default();
        let abcd = tree.ensure(0, &tokens("abcd"), 0.0);
        let abxy = tree.ensure(0, &tokens("abxy"), 1.0);
        assert_eq!(tree.tokens(abcd), (0, tokens("abcd")));
        assert_eq!(tree.tokens(abxy), (0, tokens("abxy")));
        let walk = tree.walk(0, &tokens("abq"));
        assert_eq!((walk.matched, walk.continues), (2, true));
        let walk = tree.walk(0, &tokens("abcdef"));
        assert_eq!((walk.matched, walk.continues), (4, false));
        assert_eq!(tree.walk(1, &tokens("abcd")).matched, 0);
        assert_eq!(tree.ghost_tokens(), 6);
    }

    #[test]
    fn trimming_forgets_the_oldest_and_joins_what_is_left() {
        let mut tree = Tree::default();
        let old = tree.ensure(0, &tokens("abcd"), 0.0);
        tree.set_snapshot(old, SnapshotId(1));
        let kept = tree.ensure(0, &tokens("abxy"), 1.0);
        tree.set_snapshot(kept, SnapshotId(2));
        assert_eq!(tree.trim(4), [SnapshotId(1)]);
        assert_eq!(tree.walk(0, &tokens("abcd")).matched, 2);
        assert_eq!(tree.walk(0, &tokens("abxy")).path, [kept]);
        assert_eq!(tree.trim(0), [SnapshotId(2)]);
        assert_eq!((tree.ghost_tokens(), tree.roots.len()), (0, 0));
    }

    #[test]
    fn what_is_resident_is_no_ghost() {
        let mut tree = Tree::default();
        let node = tree.ensure(0, &tokens("abcd"), 0.0);
        tree.set_snapshot(node, SnapshotId(1));
        tree.set_resident(node, Tier::Device, true);
        tree.ensure(0, &tokens("abxy"), 0.0);
        assert_eq!(tree.ghost_tokens(), 2);
        assert!(tree.trim(0).is_empty());
        let cover = tree.cover(&tree.walk(0, &tokens("abcq")), Tier::Device);
        assert_eq!(cover, Some((SnapshotId(1), 3)));
        tree.set_resident(node, Tier::Device, false);
        assert_eq!(tree.ghost_tokens(), 4);
    }
}
