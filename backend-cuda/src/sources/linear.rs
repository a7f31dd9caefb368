//! Matrix products.

use super::Source;

pub(super) const SOURCES: &[Source] = &[];
