//! `forge serve` as a process of its own, over HTTP.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod chat;
mod client;
mod fields;
mod messages;
mod models;
mod operation;
mod responses;
mod structured;
