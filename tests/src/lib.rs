//! forge-tests: harness for cross-backend correctness tests. The tests themselves are in `tests/`,
//! generic over [`Backend`] and instantiated for each backend present.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::missing_panics_doc, reason = "failing is what these functions are for")]

pub mod backends;
pub mod bad_input;
pub mod converted;
pub mod fixtures;
pub mod forge_tiny;
pub mod golden;
pub mod ops;
pub mod prefix;
pub mod recall;
pub mod runner;
pub mod session;
pub mod smollm;
pub mod tolerance;

pub use forge_core::Backend;
