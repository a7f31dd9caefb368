//! Exactness of the prefix cache and of preemption: whatever a prompt takes from elsewhere, its
//! tokens are those of a cold run alone.

use crate::fixtures::model;
use crate::ops::Random;
use crate::session::{Answer, Session, greedy_request};
use forge_core::TokenId;
use forge_core::backend::Backend;
use forge_core::engine::{EngineOptions, Request};
use forge_core::kv::{BLOCK_TOKENS, KvType};
use forge_core::model::Cache;
use forge_core::prefix::{Boundary, Kind};
use forge_core::weights::Checkpoint;

/// Tokens of the longest sequence.
const CONTEXT: usize = 320;

/// One column of the matrix.
#[derive(Clone, Copy, Debug)]
struct Setting {
    chunk: usize,
    kv_type: KvType,
}

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every setting of a hybrid model, two without recurrent layers.
    Full,
    /// One setting of the hybrid model and short answers, for a backend that is slow to open.
    Short,
}

impl Extent {
    /// Tokens generated for each prompt.
    fn count(self) -> usize {
        match self {
            Self::Full => 64,
            Self::Short => 16,
        }
    }
}

const SETTINGS: [Setting; 6] = [
    Setting { chunk: 64, kv_type: KvType::F16 },
    Setting { chunk: 16, kv_type: KvType::Q8_0 },
    Setting { chunk: 16, kv_type: KvType::F16 },
    Setting { chunk: 1000, kv_type: KvType::F16 },
    Setting { chunk: 64, kv_type: KvType::Q8_0 },
    Setting { chunk: 1000, kv_type: KvType::Q8_0 },
];

impl Setting {
    fn options(self, slots: usize) -> EngineOptions {
        EngineOptions {
            context: Some(CONTEXT),
            slots,
            kv_type: self.kv_type,
            max_rows: Some(self.chunk),
            ..EngineOptions::default()
        }
    }
}

/// A prompt that shares nothing with others of another seed.
fn random_prompt(seed: u64, length: usize, vocabulary: usize) -> Vec<TokenId> {
    let random = &mut Random::new(seed);
    (0..length).map(|_| TokenId(random.below(vocabulary) as u32)).collect()
}

/// A prompt, a branch that leaves it inside a block, one of its own, a short one.
fn prompts(vocabulary: usize) -> Vec<Vec<TokenId>> {
    let first = random_prompt(1, 150, vocabulary);
    let mut branch = first[..97].to_vec();
    branch.extend(random_prompt(2, 60, vocabulary));
    vec![first, branch, random_prompt(3, 100, vocabulary), random_prompt(4, 20, vocabulary)]
}

/// A request whose message ends a few tokens before the prompt does.
fn request(prompt: &[TokenId], count: usize) -> Request {
    let boundaries = vec![Boundary { position: prompt.len() - 5, kind: Kind::User }];
    Request { boundaries, ..greedy_request(prompt, count) }
}

fn tokens(answers: Vec<Answer>) -> Vec<Vec<TokenId>> {
    let answers = answers.into_iter();
    answers
        .map(|answer| {
            answer.end.unwrap();
            answer.tokens
        })
        .collect()
}

fn reused(answer: &Answer) -> usize {
    answer.end.as_ref().unwrap().1.reused_tokens
}

/// A model, its prompts and their tokens when each runs cold and alone.
struct Bench<'a, F> {
    open: &'a F,
    checkpoint: Checkpoint,
    prompts: Vec<Vec<TokenId>>,
    expected: Vec<Vec<TokenId>>,
    setting: Setting,
    count: usize,
}

impl<B: Backend, F: Fn() -> B> Bench<'_, F> {
    fn session(&self, options: &EngineOptions) -> Session<B> {
        Session::new((self.open)(), &self.checkpoint, options).unwrap()
    }

    fn request(&self, prompt: &[TokenId]) -> Request {
        request(prompt, self.count)
    }

    fn requests(&self) -> Vec<Request> {
        self.prompts.iter().map(|prompt| self.request(prompt)).collect()
    }

    fn blocks(&self, blocks: usize) -> u64 {
        (blocks * Cache::<B>::block_bytes(&self.checkpoint.config, self.setting.kv_type)) as u64
    }

    fn snapshot_blocks(&self) -> usize {
        Cache::<B>::snapshot_blocks(&self.checkpoint.config, self.setting.kv_type)
    }
}

fn for_each_setting<B: Backend, F: Fn() -> B>(
    open: &F,
    extent: Extent,
    check: impl Fn(&Bench<'_, F>, &str),
) {
    let all: &[(&str, &[Setting])] =
        &[("hybrid-dense-tied", &SETTINGS), ("qwen3-dense", &SETTINGS[..2])];
    let short: &[(&str, &[Setting])] = &[("hybrid-dense-tied", &SETTINGS[..1])];
    for (name, settings) in if extent == Extent::Full { all } else { short } {
        let Some(path) = model(name) else { continue };
        for setting in settings.iter().copied() {
            let checkpoint = Checkpoint::open(&path).unwrap();
            let prompts = prompts(checkpoint.config.vocab_size);
            let (expected, count) = (Vec::new(), extent.count());
            let mut bench = Bench { open, checkpoint, prompts, expected, setting, count };
            let cold = EngineOptions { prefix_cache: false, ..setting.options(1) };
            bench.expected = tokens(bench.session(&cold).run(bench.requests()).unwrap());
            check(&bench, &format!("{name} {setting:?}"));
        }
    }
}

/// See the name.
pub fn warm_prompts_continue_as_cold_ones<B: Backend>(open: impl Fn() -> B, extent: Extent) {
    for_each_setting(&open, extent, |bench, what| {
        // Room for everything: what is evicted is another test's matter.
        let options =
            EngineOptions { cache_bytes: Some(bench.blocks(1000)), ..bench.setting.options(1) };
        let mut session = bench.session(&options);
        for round in 0..2 {
            for (prompt, expected) in bench.prompts.iter().zip(&bench.expected) {
                let answer = session.run(vec![bench.request(prompt)]).unwrap().remove(0);
                if round == 1 {
                    assert!(reused(&answer) >= prompt.len() - 5, "{what}: {}", reused(&answer));
                }
                assert_eq!(&answer.tokens, expected, "{what} round {round}");
            }
        }
        // The next turn holds prompt and answer; all but its new tokens is there.
        let mut next = bench.prompts[0].clone();
        next.extend(&bench.expected[0]);
        next.extend(random_prompt(5, 30, bench.checkpoint.config.vocab_size));
        let answer = session.run(vec![bench.request(&next)]).unwrap().remove(0);
        assert_eq!(reused(&answer), bench.prompts[0].len() + bench.count - 1, "{what}");
        let cold = EngineOptions { prefix_cache: false, ..bench.setting.options(1) };
        let cold = bench.session(&cold).run(vec![bench.request(&next)]).unwrap().remove(0);
        assert_eq!(answer.tokens, cold.tokens, "{what} next turn");
    });
}

/// See the name.
pub fn a_batch_continues_as_each_alone<B: Backend>(open: impl Fn() -> B, extent: Extent) {
    for_each_setting(&open, extent, |bench, what| {
        let mut session = bench.session(&bench.setting.options(4));
        for round in ["cold", "warm"] {
            let got = tokens(session.run(bench.requests()).unwrap());
            assert_eq!(got, bench.expected, "{what} {round}");
        }
        // Equal prompts at once: the others wait for the first one's state, and one answer comes.
        let equal = random_prompt(6, 140, bench.checkpoint.config.vocab_size);
        let before = session.engine.stats().prefilled_tokens;
        let answers = session.run((0..4).map(|_| bench.request(&equal)).collect()).unwrap();
        let computed = session.engine.stats().prefilled_tokens - before;
        assert!(computed < 140 + 4 * 30, "{what}: {computed} tokens computed");
        let got = tokens(answers);
        assert!(got.iter().all(|tokens| *tokens == got[0]), "{what}: {got:?}");
    });
}

/// See the name.
pub fn prompts_from_host_memory_continue_as_cold_ones<B: Backend>(
    open: impl Fn() -> B,
    extent: Extent,
) {
    for_each_setting(&open, extent, |bench, what| {
        // Room for one context and little more on the device.
        let device = CONTEXT / BLOCK_TOKENS + 2 * bench.snapshot_blocks() + 2;
        let options = EngineOptions {
            cache_bytes: Some(bench.blocks(device)),
            host_cache_bytes: bench.blocks(1000),
            ..bench.setting.options(1)
        };
        let mut session = bench.session(&options);
        for round in 0..3 {
            for (prompt, expected) in bench.prompts.iter().zip(&bench.expected) {
                let answer = session.run(vec![bench.request(prompt)]).unwrap().remove(0);
                assert_eq!(&answer.tokens, expected, "{what} round {round}");
                while session.engine.maintain().unwrap() {}
            }
        }
        let stats = session.engine.stats();
        assert!(stats.host_written_bytes > 0 && stats.prefix.device_evictions > 0, "{what}");
        assert!(stats.host_fetched_bytes > 0, "{what}: {stats:?}");
    });
}

/// A run leaves its snapshots on the disk; the next process finds them.
///
/// # Panics
/// If a token differs, or nothing was read.
pub fn prompts_survive_a_restart<B: Backend>(open: impl Fn() -> B, extent: Extent) {
    for_each_setting(&open, extent, |bench, what| {
        let folder = tempfile::tempdir().unwrap();
        let options =
            EngineOptions { host_cache_bytes: bench.blocks(1000), ..bench.setting.options(1) };
        let fingerprint = bench.checkpoint.fingerprint();
        for round in 0..2 {
            let mut session = bench.session(&options);
            session.engine.attach_disk(folder.path(), fingerprint, 1 << 30).unwrap();
            for (prompt, expected) in bench.prompts.iter().zip(&bench.expected) {
                let answer = session.run(vec![bench.request(prompt)]).unwrap().remove(0);
                assert_eq!(&answer.tokens, expected, "{what} round {round}");
                // Whether reading beats computing is measured from the first prompt on.
                if round == 1 && session.engine.stats().finished == 1 {
                    let reused = reused(&answer);
                    assert!(reused >= prompt.len() - 5, "{what}: {reused}");
                }
            }
            let stats = session.engine.stats();
            assert_eq!(stats.disk_errors, 0);
            assert_eq!(stats.disk_read_bytes > 0, round == 1, "{what}");
            session.engine.flush_cache().unwrap();
        }
        // Another model's files are of no use, whatever their tokens.
        let mut session = bench.session(&options);
        session.engine.attach_disk(folder.path(), fingerprint ^ 1, 1 << 30).unwrap();
        let answer = session.run(vec![bench.request(&bench.prompts[0])]).unwrap().remove(0);
        assert_eq!((reused(&answer), session.engine.stats().disk_bytes), (0, 0), "{what}");
    });
}

/// See the name.
pub fn preempted_sequences_continue_as_if_they_had_not_been<B: Backend>(
    open: impl Fn() -> B,
    extent: Extent,
) {
    for_each_setting(&open, extent, |bench, what| {
        for host in [1000, 0] {
            let options = EngineOptions {
                // Prompts of 10, 10, 7 and 2 blocks, that grow by one to four each.
                cache_bytes: Some(bench.blocks(30)),
                host_cache_bytes: bench.blocks(host),
                ..bench.setting.options(4)
            };
            let mut session = bench.session(&options);
            let got = tokens(session.run(bench.requests()).unwrap());
            assert_eq!(got, bench.expected, "{what} host {host}");
            let stats = session.engine.stats();
            assert!(stats.preemptions > 0, "{what} host {host}");
            let recomputed = if host == 0 { stats.preemptions } else { 0 };
            assert_eq!(stats.preemptions_recomputed, recomputed, "{what} host {host}");
        }
    });
}

/// Random arrivals, cancellations and ends on a pool that is too small, with both tiers: nothing is
/// lost, and what comes to its end is right.
pub fn random_schedules_lose_nothing<B: Backend>(open: impl Fn() -> B, extent: Extent) {
    for_each_setting(&open, extent, |bench, what| {
        let options = EngineOptions {
            cache_bytes: Some(bench.blocks(CONTEXT / BLOCK_TOKENS + 6)),
            host_cache_bytes: bench.blocks(60),
            ..bench.setting.options(3)
        };
        let mut session = bench.session(&options);
        let random = &mut Random::new(7);
        let held = session.held();
        let mut live = Vec::new();
        for _ in 0..120 {
            match random.below(8) {
                0 | 1 if live.len() < 6 => {
                    let index = random.below(bench.prompts.len());
                    let id = session.engine.submit(bench.request(&bench.prompts[index])).unwrap();
                    live.push((id, index, Vec::new()));
                }
                2 if !live.is_empty() => {
                    let (id, ..) = live.swap_remove(random.below(live.len()));
                    session.engine.cancel(id).unwrap();
                }
                3 => {
                    session.engine.maintain().unwrap();
                }
                _ => {
                    let ended = session.collect(&mut live);
                    for (index, tokens) in ended {
                        assert_eq!(tokens, bench.expected[index], "{what}");
                    }
                }
            }
        }
        while !session.engine.is_idle() {
            for (index, tokens) in session.collect(&mut live) {
                assert_eq!(tokens, bench.expected[index], "{what}");
            }
        }
        assert!(live.is_empty());
        assert_eq!(session.held(), held, "{what}: blocks or slots leaked");
        session.engine.clear_cache().unwrap();
        assert_eq!(session.engine.free().0, session.engine.stats().blocks, "{what}");
    });
}
