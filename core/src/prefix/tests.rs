//! The policy, case by case.

use super::*;
use crate::engine::block_pool::BlockPool;
use crate::kv::BLOCK_TOKENS;

const STATE: usize = 3;

/// Serves one request after another.
struct Server {
    cache: PrefixCache,
    pool: BlockPool,
    seconds: f64,
}

fn text(name: u32, length: usize) -> Vec<TokenId> {
    (0..length as u32).map(|index| TokenId(name * 100_000 + index)).collect()
}

fn join(parts: &[&[TokenId]]) -> Vec<TokenId> {
    parts.concat()
}

fn at(position: usize, kind: Kind) -> Boundary {
    Boundary { position, kind }
}

impl Server {
    fn new(options: PrefixOptions, blocks: usize) -> Self {
        Self { cache: PrefixCache::new(options), pool: BlockPool::new(blocks), seconds: 0.0 }
    }

    fn roomy() -> Self {
        Self::new(PrefixOptions::new(STATE, 0), 10_000)
    }

    /// Computes a prompt and perhaps saves the end of the answer. Returns the hit and the cuts.
    fn ask(
        &mut self,
        prompt: &[TokenId],
        boundaries: &[Boundary],
        answer: Option<&[TokenId]>,
    ) -> (usize, Vec<Boundary>) {
        self.seconds += 1.0;
        self.cache.tick(self.seconds);
        let found = self.cache.lookup(0, prompt);
        let lease =
            found.device.map(|f| self.cache.acquire(f.id, f.position, &mut self.pool).unwrap());
        self.cache.record(&found, found.hit());
        let sequence = join(&[prompt, answer.unwrap_or_default()]);
        let wanted = sequence.len().div_ceil(BLOCK_TOKENS) - found.hit() / BLOCK_TOKENS;
        assert!(self.cache.make_room(wanted, &mut self.pool).unwrap());
        let own = self.pool.allocate(wanted).unwrap();
        let mut blocks = Vec::new();
        if let Some(mut lease) = lease {
            blocks = std::mem::take(&mut lease.kv);
            self.cache.release_lease(lease, &mut self.pool).unwrap();
        }
        blocks.extend(own);
        let mut cuts = self.cache.cuts(&found, found.hit(), boundaries);
        let planned = cuts.clone();
        if answer.is_some() {
            cuts.push(at(sequence.len(), Kind::Generated));
        }
        for cut in cuts {
            assert!(self.cache.make_room(STATE, &mut self.pool).unwrap());
            let state = self.pool.allocate(STATE).unwrap();
            let tokens = &sequence[..cut.position];
            self.cache.insert(0, tokens, cut.kind, &blocks, state, &mut self.pool).unwrap();
        }
        blocks.into_iter().for_each(|block| self.pool.release(block).unwrap());
        (found.hit(), planned)
    }
}

#[test]
fn an_identical_prompt_hits_the_end_of_its_last_message() {
    let mut server = Server::roomy();
    let prompt = text(1, 103);
    let (hit, cuts) = server.ask(&prompt, &[at(100, Kind::User)], None);
    assert_eq!((hit, cuts), (0, vec![at(100, Kind::User)]));
    assert_eq!(server.ask(&prompt, &[at(100, Kind::User)], None), (100, vec![]));
}

#[test]
fn a_whole_prompt_that_is_known_leaves_one_token() {
    let mut server = Server::roomy();
    let prompt = text(1, 200);
    // No boundary but its own end: of no use to the same prompt, so the repeat pays for a cut.
    server.ask(&prompt, &[at(200, Kind::User)], None);
    let (hit, cuts) = server.ask(&prompt, &[at(200, Kind::User)], None);
    assert_eq!((hit, cuts[0]), (0, at(199, Kind::Branch)));
    assert_eq!(server.ask(&prompt, &[], None).0, 199);
    assert_eq!(server.ask(&join(&[&prompt, &text(2, 5)]), &[], None).0, 200);
}

#[test]
fn a_shared_system_prompt_is_hit_by_the_second_user() {
    let mut server = Server::roomy();
    let system = text(1, 77);
    for user in 2..5 {
        let prompt = join(&[&system, &text(user, 50)]);
        let (hit, _) = server.ask(&prompt, &[at(77, Kind::System), at(120, Kind::User)], None);
        assert_eq!(hit, if user == 2 { 0 } else { 77 });
    }
}

#[test]
fn an_unknown_fork_costs_its_second_visitor_and_serves_the_third() {
    let mut server = Server::roomy();
    let preamble = text(1, 601);
    let mut hits = Vec::new();
    for user in 2..6 {
        let prompt = join(&[&preamble, &text(user, 41)]);
        let (hit, cuts) = server.ask(&prompt, &[at(640, Kind::User)], None);
        let branch = cuts.iter().any(|cut| *cut == at(601, Kind::Branch));
        assert_eq!(branch, user == 3);
        hits.push(hit);
    }
    assert_eq!(hits, [0, 0, 601, 601]);
}

#[test]
fn a_fork_that_saves_little_is_not_cut() {
    let mut server = Server::roomy();
    let system = text(1, 100);
    for user in 2..5 {
        // 63 tokens behind the system prompt are the same as well.
        let prompt = join(&[&system, &text(9, 63), &text(user, 40)]);
        let (_, cuts) = server.ask(&prompt, &[at(100, Kind::System)], None);
        assert!(cuts.iter().all(|cut| cut.kind != Kind::Branch));
    }
    let stats = server.cache.stats();
    assert_eq!(stats.lost_below_fork, 0, "the tree never saw tokens behind a snapshot");
}

#[test]
fn dialogues_resume_at_the_end_of_the_answer() {
    let mut server = Server::roomy();
    let mut history = text(1, 90);
    let mut expected = 0;
    for turn in 0..5 {
        history.extend(text(10 + turn, 33));
        let user = history.len();
        history.extend(text(8, 3));
        let answer = text(20 + turn, 21);
        let (hit, _) = server.ask(&history, &[at(user, Kind::User)], Some(&answer));
        assert_eq!(hit, expected);
        history.extend(answer);
        expected = history.len();
    }
}

#[test]
fn regenerating_and_editing_resume_where_the_old_text_ends() {
    let mut server = Server::roomy();
    let (question, header) = (text(1, 90), text(8, 3));
    let asked = join(&[&question, &header]);
    server.ask(&asked, &[at(90, Kind::User)], Some(&text(2, 30)));
    let answered = join(&[&asked, &text(2, 30)]);
    let second = join(&[&answered, &text(3, 33)]);
    let user = [at(second.len(), Kind::User)];
    let prompt = join(&[&second, &header]);
    assert_eq!(server.ask(&prompt, &user, Some(&text(4, 30))).0, answered.len());
    // Another answer.
    assert_eq!(server.ask(&prompt, &user, Some(&text(5, 30))).0, second.len());
    // The last question is edited in its middle.
    let edited = join(&[&second[..140], &text(6, 20)]);
    assert_eq!(server.ask(&edited, &[at(160, Kind::User)], None).0, answered.len());
}

#[test]
fn stripped_thinking_falls_back_to_the_last_question() {
    let mut server = Server::roomy();
    let question = text(1, 90);
    let header = text(8, 3);
    server.ask(&join(&[&question, &header]), &[at(90, Kind::User)], None);
    let next = join(&[&question, &text(2, 20), &text(3, 30), &header]);
    assert_eq!(server.ask(&next, &[at(140, Kind::User)], None).0, 90);
}

#[test]
fn long_stretches_get_anchors_and_near_cuts_merge() {
    let server = Server::roomy();
    let found = server.cache.lookup(0, &text(1, 10_000));
    let cuts = server.cache.cuts(&found, 0, &[at(4100, Kind::User), at(4110, Kind::System)]);
    let expected = [at(4100, Kind::User), at(4110, Kind::System), at(8192, Kind::Anchor)];
    assert_eq!(cuts, expected);
    let cuts = server.cache.cuts(&found, 5000, &[at(8180, Kind::User), at(20_000, Kind::User)]);
    assert_eq!(cuts, [at(8180, Kind::User), at(8192, Kind::Anchor)]);
}

#[test]
fn what_a_dialogue_left_behind_goes_before_what_it_needs() {
    let options = PrefixOptions { policy: EvictionPolicy::Reuse, ..PrefixOptions::new(STATE, 0) };
    let mut server = Server::new(options, 10_000);
    let system = text(1, 160);
    let mut last = Vec::new();
    for tenant in 0..4 {
        let mut history = join(&[&system, &text(10 + tenant, 32)]);
        for turn in 0..3 {
            let user = history.len();
            let answer = text(100 + 10 * tenant + turn, 32);
            let known = [at(160, Kind::System), at(user, Kind::User)];
            server.ask(&history, &known, Some(&answer));
            history.extend(answer);
            last = history.clone();
            history.extend(text(200 + 10 * tenant + turn, 32));
        }
    }
    // Half of all that is held: the newest end and the system prompt stay.
    let held = server.cache.stats().device_blocks;
    server.seconds += 1.0;
    server.cache.tick(server.seconds);
    assert!(server.cache.shrink(held / 2, &mut server.pool).unwrap());
    assert!(server.cache.contains(0, &system));
    assert!(server.cache.contains(0, &last));
    assert!(server.cache.stats().device_evictions > 0);
}

#[test]
fn a_lease_keeps_its_snapshot() {
    let mut server = Server::new(PrefixOptions::new(STATE, 0), 20);
    let prompt = text(1, 100);
    server.ask(&prompt, &[at(90, Kind::User)], None);
    let found = server.cache.lookup(0, &prompt).device.unwrap();
    let lease = server.cache.acquire(found.id, 90, &mut server.pool).unwrap();
    assert_eq!((lease.kv.len(), lease.partial.is_some(), lease.state.len()), (5, true, STATE));
    assert!(!server.cache.make_room(20, &mut server.pool).unwrap());
    assert!(server.cache.contains(0, &prompt[..90]));
    server.cache.release_lease(lease, &mut server.pool).unwrap();
    assert!(server.cache.make_room(20, &mut server.pool).unwrap());
    let found = server.cache.lookup(0, &prompt);
    assert_eq!((found.hit(), found.taken.unwrap().position), (0, 90));
    server.cache.record(&found, 0);
    assert_eq!(server.cache.stats().lost_evicted, 90);
    assert!(server.cache.acquire(found.taken.unwrap().id, 90, &mut server.pool).is_err());
}

#[test]
fn salts_are_apart() {
    let mut server = Server::roomy();
    let prompt = text(1, 100);
    server.ask(&prompt, &[at(90, Kind::User)], None);
    assert_eq!(server.cache.lookup(0, &prompt).hit(), 90);
    assert_eq!(server.cache.lookup(1, &prompt).known, 0);
}

#[test]
fn a_parked_sequence_waits_on_the_host() {
    let mut server = Server::new(PrefixOptions::new(STATE, 12), 40);
    let tokens = text(1, 100);
    let kv = server.pool.allocate(7).unwrap();
    let state = server.pool.allocate(STATE).unwrap();
    let (cache, pool) = (&mut server.cache, &mut server.pool);
    let id = cache.insert(0, &tokens, Kind::Parked, &kv, state, pool).unwrap();
    kv.into_iter().for_each(|block| pool.release(block).unwrap());
    assert!(!cache.make_room(40, pool).unwrap(), "it must reach the host first");
    let transfer = cache.next_write_through(pool).unwrap().unwrap();
    assert_eq!((transfer.id, transfer.copies.len(), transfer.to()), (id, 10, Tier::Host));
    cache.finish_transfer(transfer, true, pool).unwrap();
    assert!(cache.make_room(40, pool).unwrap());
    assert!(!cache.shrink_host(0).unwrap());
    cache.shrink_host(12).unwrap();
    let found = cache.lookup(0, &join(&[&tokens, &text(2, 1)]));
    assert_eq!((found.hit(), found.host.unwrap().position), (0, 100));
    let transfer = cache.begin_fetch(id, pool).unwrap().unwrap();
    cache.finish_transfer(transfer, true, pool).unwrap();
    let lease = cache.acquire(id, 100, pool).unwrap();
    cache.release_lease(lease, pool).unwrap();
    assert!(cache.shrink_host(0).unwrap(), "once taken it is an ordinary snapshot");
}

#[test]
fn a_fetch_has_to_be_cheaper_than_computing() {
    let mut server = Server::new(PrefixOptions::new(STATE, 100), 100);
    let prompt = text(1, 100);
    server.ask(&prompt, &[at(96, Kind::User)], None);
    let (cache, pool) = (&mut server.cache, &mut server.pool);
    let transfer = cache.next_write_through(pool).unwrap().unwrap();
    cache.finish_transfer(transfer, true, pool).unwrap();
    assert!(cache.next_write_through(pool).unwrap().is_none());
    assert!(cache.make_room(100, pool).unwrap());
    let found = cache.lookup(0, &prompt);
    // 9 blocks of 100 bytes against 96 tokens.
    let costs =
        |bytes_per_second| Costs { block_bytes: 100, bytes_per_second, seconds_per_token: 1.0 };
    assert!(cache.worth_fetching(&found, &costs(10.0)));
    assert!(!cache.worth_fetching(&found, &costs(9.0)));
}

#[test]
fn without_states_any_token_can_be_resumed() {
    let mut cache = PrefixCache::new(PrefixOptions::new(0, 0));
    let mut pool = BlockPool::new(100);
    let kv = pool.allocate(7).unwrap();
    let tokens = text(1, 100);
    cache.insert(0, &tokens, Kind::Generated, &kv, Vec::new(), &mut pool).unwrap();
    let prompt = join(&[&tokens[..53], &text(2, 9)]);
    let found = cache.lookup(0, &prompt).device.unwrap();
    assert_eq!(found.position, 53);
    let lease = cache.acquire(found.id, 53, &mut pool).unwrap();
    assert_eq!((&lease.kv[..], lease.partial), (&kv[..3], Some(kv[3])));
    cache.release_lease(lease, &mut pool).unwrap();
    assert_eq!(cache.lookup(0, &tokens).hit(), 99);
}

#[test]
fn wrong_lists_are_refused() {
    let mut cache = PrefixCache::new(PrefixOptions::new(STATE, 0));
    let mut pool = BlockPool::new(10);
    let kv = pool.allocate(2).unwrap();
    let state = pool.allocate(STATE).unwrap();
    let mut insert = |tokens: usize, kv: &[BlockId], state: &[BlockId]| {
        cache.insert(0, &text(1, tokens), Kind::User, kv, state.to_vec(), &mut pool).is_ok()
    };
    assert!(!insert(0, &kv, &state));
    assert!(!insert(33, &kv, &state));
    assert!(!insert(32, &kv, &state[1..]));
    assert!(!insert(32, &[BlockId(9), BlockId(8)], &state));
    assert!(insert(32, &kv, &state));
}
