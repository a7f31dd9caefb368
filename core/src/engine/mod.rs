//! The engine: sequences, blocks, steps.
