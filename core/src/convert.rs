//! Checkpoint to `.ytf`.
