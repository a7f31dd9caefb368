//! The engine behind its channel, on the CPU backend with the embedded model.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use forge_core::engine::service::{EngineClient, StreamEvent, Ticket, service};
use forge_core::engine::{Allowed, Engine, EngineOptions, FinishReason, Request, TokenConstraint};
use forge_core::model::load;
use forge_core::reference::Cpu;
use forge_core::{Error, Result, TokenId};
use forge_tests::fixtures::embedded;
use forge_tests::session::greedy_request;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(slots: usize) -> (EngineClient, JoinHandle<()>) {
    let (client, worker) = service(8);
    let thread = std::thread::spawn(move || {
        let backend = Cpu::new();
        let checkpoint = embedded();
        let model = load(&backend, &checkpoint, &mut |_| ()).unwrap();
        let options = EngineOptions { context: Some(512), slots, ..EngineOptions::default() };
        worker.run(Engine::new(backend, model, &options).unwrap());
    });
    (client, thread)
}

fn submit(client: &EngineClient, request: Request) -> (Ticket, Receiver<StreamEvent>) {
    let (sender, receiver) = channel();
    let ticket = client.submit(request, Box::new(move |event| sender.send(event).is_ok())).unwrap();
    (ticket, receiver)
}

fn prompt() -> Vec<TokenId> {
    (100..120).map(TokenId).collect()
}

/// Tokens and end of a reply.
fn read(events: &Receiver<StreamEvent>) -> (Vec<TokenId>, Result<FinishReason>) {
    let mut tokens = Vec::new();
    loop {
        match events.recv_timeout(PATIENCE).unwrap() {
            StreamEvent::Prefill { .. } => {}
            StreamEvent::Token { token, .. } => tokens.push(token),
            StreamEvent::Finished { reason, .. } => return (tokens, Ok(reason)),
            StreamEvent::Failed(error) => return (tokens, Err(error)),
        }
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn requests_run_together_and_a_stop_lets_them_end() {
    let (client, thread) = start(2);
    let running: Vec<_> = (0..4).map(|_| submit(&client, greedy_request(&prompt(), 12))).collect();
    client.stop();
    let replies: Vec<_> = running.iter().map(|(_, events)| read(events)).collect();
    for (tokens, end) in &replies {
        assert_eq!((tokens, end.as_ref().unwrap()), (&replies[0].0, &FinishReason::Length));
        assert_eq!(tokens.len(), 12);
    }
    thread.join().unwrap();
    let late = client.submit(greedy_request(&prompt(), 1), Box::new(|_| true));
    assert!(matches!(late, Err(Error::Device { .. })));
}

#[test]
fn a_dropped_ticket_and_a_reader_that_left_free_everything() {
    let (client, thread) = start(1);
    wait_until("ready", || client.stats().free_slots == 1);
    let free = client.stats();
    let (ticket, events) = submit(&client, greedy_request(&prompt(), 400));
    let (_waits, waiting) = submit(&client, greedy_request(&prompt(), 3));
    while !matches!(events.recv_timeout(PATIENCE).unwrap(), StreamEvent::Token { .. }) {}
    drop(ticket);
    assert_eq!(read(&waiting).0.len(), 3);
    let (_ticket, events) = submit(&client, greedy_request(&prompt(), 400));
    drop(events);
    wait_until("idle again", || client.stats() == free);
    // Cancelled before the engine saw it.
    drop(submit(&client, greedy_request(&prompt(), 400)));
    wait_until("idle again", || client.stats() == free);
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_refused_request_says_why_and_harms_nobody() {
    let (client, thread) = start(1);
    let (_ticket, events) = submit(&client, greedy_request(&[], 1));
    assert!(matches!(read(&events).1, Err(Error::Invalid { field, .. }) if field == "prompt"));
    let (_ticket, events) = submit(&client, greedy_request(&prompt(), 2));
    assert!(read(&events).1.is_ok());
    drop(client);
    thread.join().unwrap();
}

/// Even tokens only, the third one forced, and a failure in the end.
#[derive(Debug, Default)]
struct Odd {
    seen: Vec<TokenId>,
    mask: Vec<u32>,
}

impl TokenConstraint for Odd {
    fn allowed(&mut self) -> Result<Allowed<'_>> {
        match self.seen.len() {
            0 => Ok(Allowed::Any),
            2 => Ok(Allowed::Only(TokenId(7))),
            5 => Err(Error::invalid("rule", "broken")),
            _ => {
                self.mask = vec![0x5555_5555; 200];
                Ok(Allowed::Mask(&self.mask))
            }
        }
    }

    fn accept(&mut self, token: TokenId) -> Result<()> {
        self.seen.push(token);
        Ok(())
    }
}

#[test]
fn a_constraint_rules_its_own_request_only() {
    let (client, thread) = start(2);
    let (_free, free) = submit(&client, greedy_request(&prompt(), 8));
    let constraint: Option<Box<dyn TokenConstraint>> = Some(Box::new(Odd::default()));
    let request = Request { constraint, ..greedy_request(&prompt(), 8) };
    let (_ruled, ruled) = submit(&client, request);
    let (tokens, end) = read(&ruled);
    let (expected, _) = read(&free);
    assert_eq!(tokens[0], expected[0]);
    assert_eq!((tokens[1].0 % 2, tokens[2], tokens[3].0 % 2), (0, TokenId(7), 0));
    assert_eq!(tokens.len(), 5);
    assert!(matches!(end, Err(Error::Invalid { field, .. }) if field == "rule"));
    assert_eq!(expected.len(), 8);
    drop(client);
    thread.join().unwrap();
}
