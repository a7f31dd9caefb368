//! Recorded programs by pass shape: a small least-recently-used cache.

use crate::backend::Backend;
use crate::error::Result;
use crate::model::PassShape;
use std::collections::HashMap;

/// Most programs kept. A GPU backend's row buckets give fewer shapes than this.
pub(super) const CAPACITY: usize = 96;

/// Programs of one kind of pass.
pub(super) struct Programs<B: Backend> {
    entries: HashMap<PassShape, (u64, B::Program)>,
    clock: u64,
}

impl<B: Backend> Programs<B> {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }

    /// The program of `shape`, recorded by `record` if it is not there.
    pub(super) fn get_or_record(
        &mut self,
        shape: PassShape,
        record: impl FnOnce() -> Result<B::Program>,
    ) -> Result<&B::Program> {
        self.clock += 1;
        if !self.entries.contains_key(&shape) {
            if self.entries.len() >= CAPACITY {
                let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used);
                if let Some(shape) = oldest.map(|(shape, _)| *shape) {
                    self.entries.remove(&shape);
                }
            }
            tracing::debug!(?shape, "recording");
            self.entries.insert(shape, (self.clock, record()?));
        }
        let entry = self.entries.entry(shape);
        match entry {
            std::collections::hash_map::Entry::Occupied(entry) => {
                let (used, program) = entry.into_mut();
                *used = self.clock;
                Ok(program)
            }
            std::collections::hash_map::Entry::Vacant(_) => {
                Err(crate::Error::device("record", "the program was not kept"))
            }
        }
    }
}
