//! The binary as users meet it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod common;
mod files;
mod run;
