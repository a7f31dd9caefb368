//! Mixers: attention, delta rule, convolution.

use super::Source;

pub(super) const SOURCES: &[Source] = &[];
