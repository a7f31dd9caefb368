//! Element-wise ops, norms, lookups and routing.

use super::{Source, source};

pub(super) const SOURCES: &[Source] = &[source!("add", hot)];
