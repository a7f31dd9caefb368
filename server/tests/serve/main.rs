//! `forge serve` as a process of its own, over HTTP.

mod chat;
mod client;
mod fields;
mod models;
mod operation;
mod structured;
