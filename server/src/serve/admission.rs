//! How many replies may wait and run, and which ones do.

use super::error::{ApiError, ErrorKind};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Counts replies and refuses what is too much.
#[derive(Debug)]
pub(crate) struct Gate {
    limit: usize,
    taken: AtomicUsize,
    active: Mutex<BTreeMap<u64, Arc<Active>>>,
    next: AtomicU64,
}

/// A request that waits or runs, for those who ask.
#[derive(Debug)]
pub(crate) struct Active {
    /// Id of the HTTP request.
    pub(crate) id: String,
    /// When it arrived.
    pub(crate) since: Instant,
    /// Tokens of the prompts.
    pub(crate) prompt_tokens: AtomicUsize,
    /// Those that are computed.
    pub(crate) prefilled: AtomicUsize,
    /// Tokens generated.
    pub(crate) generated: AtomicUsize,
}

/// The right to wait and run.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    count: usize,
    key: u64,
    /// What others see of the request.
    pub(crate) active: Arc<Active>,
}

impl Gate {
    /// At most `limit` replies at once.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            taken: AtomicUsize::new(0),
            active: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// Room for `count` replies of the request `id`.
    ///
    /// # Errors
    /// 429 with a time to come back; 400 if there could never be room.
    pub(crate) fn enter(self: &Arc<Self>, count: usize, id: &str) -> Result<Permit, ApiError> {
        if count > self.limit {
            let reason = format!("{count} replies; this server takes {} at once", self.limit);
            return Err(ApiError::invalid("n", reason));
        }
        let room = |taken: usize| (taken + count <= self.limit).then_some(taken + count);
        if self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
            metrics::counter!("forge_requests_refused_total").increment(1);
            return Err(ApiError {
                code: Some("queue_full"),
                retry_after_s: Some(1),
                ..ApiError::new(ErrorKind::Busy, "the queue is full; try again later")
            });
        }
        let active = Arc::new(Active {
            id: id.to_owned(),
            since: Instant::now(),
            prompt_tokens: AtomicUsize::new(0),
            prefilled: AtomicUsize::new(0),
            generated: AtomicUsize::new(0),
        });
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let listed = Arc::clone(&active);
        self.active.lock().unwrap_or_else(PoisonError::into_inner).insert(key, listed);
        Ok(Permit { gate: Arc::clone(self), count, key, active })
    }

    /// Replies that wait and run.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// The requests that wait and run, oldest first.
    pub(crate) fn active(&self) -> Vec<Arc<Active>> {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.values().map(Arc::clone).collect()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.taken.fetch_sub(self.count, Ordering::AcqRel);
        let mut active = self.gate.active.lock().unwrap_or_else(PoisonError::into_inner);
        active.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_refused_until_there_is_room() {
        let gate = Gate::new(3);
        let first = gate.enter(2, "a").unwrap();
        assert_eq!(gate.enter(2, "b").unwrap_err().kind, ErrorKind::Busy);
        let second = gate.enter(1, "c").unwrap();
        assert_eq!(gate.active().iter().map(|a| a.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        drop(first);
        assert!(gate.enter(2, "b").is_ok());
        drop(second);
        assert_eq!(gate.taken(), 0);
        assert_eq!(gate.enter(4, "d").unwrap_err().kind, ErrorKind::InvalidRequest);
    }
}
