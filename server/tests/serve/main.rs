//! `forge serve` as a process of its own, over HTTP.

mod chat;
mod client;
mod fields;
mod messages;
mod models;
mod operation;
mod responses;
mod structured;
