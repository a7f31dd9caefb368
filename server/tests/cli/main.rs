//! The binary as users meet it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod common;
mod convert;
mod files;
mod run;
