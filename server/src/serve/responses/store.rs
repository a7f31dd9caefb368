//! Responses that clients may come back to, in memory, up to a number of bytes.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A response and what it was a response to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// The response object.
    pub(super) response: Value,
    /// Items of its request.
    pub(super) input: Vec<Value>,
    /// The response that it went on from.
    pub(super) previous: Option<String>,
}

impl Stored {
    /// Items of the response.
    pub(super) fn output(&self) -> &[Value] {
        self.response["output"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        let items = self.input.iter().map(|item| item.to_string().len());
        self.response.to_string().len() + items.sum::<usize>()
    }
}

/// Responses by id. When there is no more room, those that were not used for longest go.
#[derive(Debug)]
pub(crate) struct ResponseStore {
    limit_bytes: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<String, Entry>,
    /// Ids by their last use.
    by_use: BTreeMap<u64, String>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    stored: Arc<Stored>,
    bytes: usize,
    used: u64,
}

impl ResponseStore {
    /// An empty store; with 0 bytes it keeps nothing.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, inner: Mutex::default() }
    }

    /// Keeps a response, if it is not larger than the whole store.
    pub(super) fn insert(&self, id: &str, stored: Stored) {
        let bytes = stored.bytes();
        if bytes > self.limit_bytes {
            tracing::warn!(response = id, bytes, "a response is too large to be kept");
            return;
        }
        let mut inner = self.lock();
        inner.remove(id);
        let used = inner.tick();
        inner.bytes += bytes;
        inner.by_use.insert(used, id.to_owned());
        inner.entries.insert(id.to_owned(), Entry { stored: Arc::new(stored), bytes, used });
        inner.use_chain(id);
        while inner.bytes > self.limit_bytes {
            let Some(oldest) = inner.by_use.values().next().cloned() else { break };
            inner.remove(&oldest);
        }
    }

    /// The response of an id.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Stored>> {
        let mut inner = self.lock();
        inner.use_chain(id);
        inner.entries.get(id).map(|entry| Arc::clone(&entry.stored))
    }

    /// Forgets a response. False if there was none.
    pub(super) fn remove(&self, id: &str) -> bool {
        self.lock().remove(id)
    }

    /// A response and all that it went on from, oldest first.
    ///
    /// # Errors
    /// The id of the one that is missing.
    pub(super) fn chain(&self, id: &str) -> Result<Vec<Arc<Stored>>, String> {
        let mut inner = self.lock();
        inner.use_chain(id);
        let mut chain = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            let Some(entry) = inner.entries.get(&id) else { return Err(id) };
            next = entry.stored.previous.clone();
            chain.push(Arc::clone(&entry.stored));
        }
        chain.reverse();
        Ok(chain)
    }

    /// An item of any response or its input.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let inner = self.lock();
        let recent = inner.by_use.values().rev().filter_map(|id| inner.entries.get(id));
        let mut items = recent.flat_map(|e| e.stored.output().iter().chain(&e.stored.input));
        items.find(|item| item["id"] == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Marks a response as used, and those before it as used later still: a chain must lose its end
    /// before its beginning.
    fn use_chain(&mut self, id: &str) {
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            let used = self.tick();
            let Some(entry) = self.entries.get_mut(&id) else { return };
            self.by_use.remove(&entry.used);
            entry.used = used;
            next = entry.stored.previous.clone();
            self.by_use.insert(used, id);
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some(entry) = self.entries.remove(id) else { return false };
        self.by_use.remove(&entry.used);
        self.bytes -= entry.bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(text: &str, previous: Option<&str>) -> Stored {
        Stored {
            response: json!({"output": [{"id": format!("msg_{text}"), "text": text}]}),
            input: vec![json!({"id": format!("in_{text}")})],
            previous: previous.map(str::to_owned),
        }
    }

    #[test]
    fn the_least_used_goes_first_and_a_chain_from_its_end() {
        let size = stored("a", Some("a")).bytes();
        let store = ResponseStore::new(3 * size);
        store.insert("a", stored("a", None));
        store.insert("b", stored("b", Some("a")));
        store.insert("x", stored("x", None));
        // Room for one more: the end of the chain goes, although it came after its beginning.
        store.insert("y", stored("y", None));
        assert!(store.get("b").is_none() && store.get("a").is_some());
        assert_eq!(store.chain("b"), Err("b".to_owned()));
        assert!(store.get("x").is_some() && store.get("y").is_some());
        assert!(store.lock().bytes <= 3 * size);
    }

    #[test]
    fn chains_are_told_from_the_beginning_and_break_where_one_is_missing() {
        let store = ResponseStore::new(10_000);
        store.insert("a", stored("a", None));
        store.insert("b", stored("b", Some("a")));
        store.insert("c", stored("c", Some("b")));
        let texts = |id: &str| {
            let chain = store.chain(id).unwrap();
            chain.iter().map(|s| s.output()[0]["text"].as_str().unwrap().to_owned()).collect()
        };
        let all: Vec<String> = texts("c");
        assert_eq!(all, ["a", "b", "c"]);
        assert_eq!(store.item("msg_b").unwrap()["text"], "b");
        assert!(store.item("in_c").is_some() && store.item("msg_z").is_none());
        assert!(store.remove("b") && !store.remove("b"));
        assert_eq!(store.chain("c"), Err("b".to_owned()));
    }

    #[test]
    fn bytes_are_given_back() {
        let store = ResponseStore::new(10_000);
        for _ in 0..3 {
            store.insert("a", stored("a", None));
        }
        store.remove("a");
        let inner = store.lock();
        assert_eq!((inner.bytes, inner.entries.len(), inner.by_use.len()), (0, 0, 0));
        drop(inner);
        let nothing = ResponseStore::new(0);
        nothing.insert("a", stored("a", None));
        assert!(nothing.get("a").is_none());
    }
}
