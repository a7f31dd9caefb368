//! Traces: who asks what, and when.

use crate::ids::TokenId;
use crate::prefix::{Boundary, Kind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::collections::BTreeSet;

/// Tokens of the header that asks for an answer, behind the last message.
const GENERATION_PROMPT: usize = 4;
/// Tokens of a tenant's system message and tools.
const SYSTEM: usize = 2208;
/// Mean tokens of a message of the user or a tool.
const USER: usize = 154;
/// Mean tokens of an answer. With the two above: prompts of 2366 tokens and 210 more a turn.
const ANSWER: usize = 52;
/// Mean tokens of reasoning before an answer, in the traces that have it.
const THINKING: usize = 700;
/// Messages vary by this share, evenly, and so do pauses by the next one: a tenant asks again after
/// 0.5 to 1.5 times the mean pause, which makes arrivals nearly cyclic.
const LENGTH_SPREAD: f64 = 0.25;
const PAUSE_SPREAD: f64 = 0.5;
/// Documents, and their mean tokens, of the trace about documents.
const DOCUMENTS: usize = 24;
const DOCUMENT: usize = 12_000;

/// What the tenants do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trace {
    /// Dialogues of six turns, one after another, behind the tenant's own system message.
    Agents,
    /// Every third answer is asked for once more.
    Regenerate,
    /// The last turn is asked in four ways.
    Continuations,
    /// From the third turn on, the message before the last is replaced by a shorter one.
    Rewritten,
    /// Answers begin with reasoning that the template drops from the history.
    ThinkingStripped,
    /// Answers begin with reasoning that stays.
    ThinkingKept,
    /// No message boundary is known but the end, and dialogues have a single turn.
    UnknownSplit,
    /// Single questions about one of 24 documents; nobody says where the document ends.
    Documents,
}

impl Trace {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Agents,
        Self::Regenerate,
        Self::Continuations,
        Self::Rewritten,
        Self::ThinkingStripped,
        Self::ThinkingKept,
        Self::UnknownSplit,
        Self::Documents,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Regenerate => "regenerate",
            Self::Continuations => "continuations",
            Self::Rewritten => "rewritten",
            Self::ThinkingStripped => "thinking-stripped",
            Self::ThinkingKept => "thinking-kept",
            Self::UnknownSplit => "unknown-split",
            Self::Documents => "documents",
        }
    }
}

/// A trace and its size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// What the tenants do.
    pub trace: Trace,
    /// How many there are.
    pub tenants: usize,
    /// Turns of a dialogue.
    pub turns: usize,
    /// Requests per second of all tenants together.
    pub requests_per_second: f64,
    /// Requests of each tenant before measuring begins.
    pub warm_up: usize,
    /// Requests of each tenant that are measured.
    pub measured: usize,
    /// Seed of lengths, tokens and pauses.
    pub seed: u64,
}

impl Workload {
    /// The reference workload with so many tenants.
    pub fn reference(trace: Trace, tenants: usize) -> Self {
        Self {
            trace,
            tenants,
            turns: 6,
            requests_per_second: 6.0,
            warm_up: 18,
            measured: 24,
            seed: 1,
        }
    }

    /// The requests in order of time.
    pub fn requests(self) -> impl Iterator<Item = Arrival> {
        Generator::new(self)
    }
}

/// A request of a trace.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Seconds from the start.
    pub seconds: f64,
    /// False while the cache warms up.
    pub measured: bool,
    /// Prompt.
    pub prompt: Vec<TokenId>,
    /// Boundaries that the server knows.
    pub boundaries: Vec<Boundary>,
    /// The answer.
    pub answer: Vec<TokenId>,
    /// The next prompt will repeat the answer: the template probe says so.
    pub keeps_answer: bool,
}

/// A tenant's dialogue.
struct Tenant {
    system: Vec<TokenId>,
    /// Messages after the system message: alternately the user's and the answer.
    messages: Vec<Vec<TokenId>>,
    turn: usize,
    /// Times that the last turn was asked again.
    again: usize,
}

struct Generator {
    workload: Workload,
    random: ChaCha8Rng,
    header: Vec<TokenId>,
    documents: Vec<Vec<TokenId>>,
    tenants: Vec<Tenant>,
    /// Next request of each tenant, by time in microseconds.
    due: BTreeSet<(u64, usize)>,
    left: usize,
    total: usize,
}

impl Generator {
    fn new(workload: Workload) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(workload.seed);
        let header = text(&mut random, GENERATION_PROMPT);
        let documents = match workload.trace {
            Trace::Documents => (0..DOCUMENTS).map(|_| message(&mut random, DOCUMENT)).collect(),
            _ => Vec::new(),
        };
        let shared = text(&mut random, SYSTEM);
        let tenants = (0..workload.tenants).map(|index| Tenant {
            system: match workload.trace {
                Trace::UnknownSplit | Trace::Documents => shared.clone(),
                _ => text(&mut random, SYSTEM),
            },
            messages: Vec::new(),
            // The first dialogues begin late, so that not all end at once.
            turn: index % workload.turns,
            again: 0,
        });
        let tenants: Vec<Tenant> = tenants.collect();
        let spacing = 1e6 / workload.requests_per_second;
        let due = (0..workload.tenants).map(|i| ((i as f64 * spacing) as u64, i)).collect();
        let total = workload.tenants * (workload.warm_up + workload.measured);
        Self { workload, random, header, documents, tenants, due, left: total, total }
    }

    fn ask(&mut self, index: usize) -> (Vec<TokenId>, Vec<Boundary>, Vec<TokenId>, bool) {
        let trace = self.workload.trace;
        let random = &mut self.random;
        let tenant = &mut self.tenants[index];
        let again = match trace {
            Trace::Regenerate => tenant.again == 0 && random.random_range(0..3) == 0,
            Trace::Continuations => tenant.turn == self.workload.turns && tenant.again < 3,
            _ => false,
        } && tenant.messages.len() >= 2;
        let single = matches!(trace, Trace::UnknownSplit | Trace::Documents);
        if again {
            tenant.again += 1;
            tenant.messages.pop();
            if trace == Trace::Continuations {
                tenant.messages.pop();
                tenant.messages.push(message(random, USER));
            }
        } else {
            tenant.again = 0;
            if tenant.turn >= self.workload.turns || single {
                tenant.turn = 0;
                tenant.messages.clear();
            }
            tenant.turn += 1;
            if trace == Trace::Rewritten && tenant.messages.len() >= 4 {
                let at = tenant.messages.len() - 4;
                let old = &mut tenant.messages[at];
                let kept = old.len() / 4;
                old.truncate(kept);
                old.extend(text(random, 8));
            }
            tenant.messages.push(message(random, USER));
        }
        let mut prompt = match trace {
            Trace::Documents => {
                let mut prompt = tenant.system[..200].to_vec();
                prompt.extend(&self.documents[random.random_range(0..DOCUMENTS)]);
                prompt
            }
            _ => tenant.system.clone(),
        };
        let mut boundaries = Vec::new();
        if !single {
            boundaries.push(Boundary { position: prompt.len(), kind: Kind::System });
        }
        for (at, message) in tenant.messages.iter().enumerate() {
            if at % 2 == 1 {
                prompt.extend(&self.header);
            }
            prompt.extend(message);
        }
        boundaries.push(Boundary { position: prompt.len(), kind: Kind::User });
        prompt.extend(&self.header);
        let mut answer = Vec::new();
        if matches!(trace, Trace::ThinkingStripped | Trace::ThinkingKept) {
            answer = message(random, THINKING);
        }
        let spoken = message(random, ANSWER);
        answer.extend(&spoken);
        let stripped = trace == Trace::ThinkingStripped;
        tenant.messages.push(if stripped { spoken } else { answer.clone() });
        (prompt, boundaries, answer, !stripped && !single)
    }
}

impl Iterator for Generator {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        let (time, index) = self.due.pop_first()?;
        let (prompt, boundaries, answer, keeps_answer) = self.ask(index);
        let pause = self.workload.tenants as f64 / self.workload.requests_per_second;
        let pause = pause * self.random.random_range(1.0 - PAUSE_SPREAD..1.0 + PAUSE_SPREAD);
        self.due.insert((time + (pause * 1e6) as u64, index));
        Some(Arrival {
            seconds: time as f64 / 1e6,
            measured: self.total - self.left > self.workload.tenants * self.workload.warm_up,
            prompt,
            boundaries,
            answer,
            keeps_answer,
        })
    }
}

/// A message of about `mean` tokens.
fn message(random: &mut ChaCha8Rng, mean: usize) -> Vec<TokenId> {
    let spread = (mean as f64 * LENGTH_SPREAD) as usize;
    let length = random.random_range(mean - spread..=mean + spread);
    text(random, length)
}

fn text(random: &mut ChaCha8Rng, length: usize) -> Vec<TokenId> {
    (0..length).map(|_| TokenId(random.random_range(0..150_000))).collect()
}
