//! The hybrid graph, written once over [`crate::Ops`].
