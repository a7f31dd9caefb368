//! The CPU backend in f32: the meaning of every op.
pub(crate) mod matmul;
