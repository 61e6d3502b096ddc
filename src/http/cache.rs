//! Encoded answers, shared by everybody who asks the same.
//!
//! An answer belongs to a question and an index: the index of a question changes whenever its answer does. Thousands of
//! blocked readers of one service that wake together encode it once.

use crate::model::Index;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;

/// How many questions are kept at most.
const MAX_ENTRIES: usize = 1024;

struct Entry {
    index: Index,
    body: Bytes,
    used: u64,
}

#[derive(Default)]
struct Entries {
    by_question: HashMap<String, Entry>,
    bytes: usize,
    clock: u64,
}

/// Encoded answers, bounded in number and bytes.
pub struct Cache {
    entries: Mutex<Entries>,
    max_bytes: usize,
}

impl Cache {
    /// Keeps at most this many bytes of answers.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            entries: Mutex::default(),
            max_bytes,
        }
    }

    /// The answer to a question at an index, encoded now if nobody did before.
    ///
    /// # Errors
    /// What `encode` says.
    pub fn get_or_encode<E>(
        &self,
        question: String,
        index: Index,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if let Some(body) = self.entries.lock().get(&question, index) {
            return Ok(body);
        }
        let body = encode()?;
        self.entries
            .lock()
            .put(question, index, body.clone(), self.max_bytes);
        Ok(body)
    }
}

impl Entries {
    fn get(&mut self, question: &str, index: Index) -> Option<Bytes> {
        self.clock += 1;
        let entry = self.by_question.get_mut(question)?;
        if entry.index != index {
            return None;
        }
        entry.used = self.clock;
        Some(entry.body.clone())
    }

    fn put(&mut self, question: String, index: Index, body: Bytes, max_bytes: usize) {
        let size = body.len();
        if size > max_bytes / 4 {
            return;
        }
        let entry = Entry {
            index,
            body,
            used: self.clock,
        };
        if let Some(old) = self.by_question.insert(question, entry) {
            self.bytes -= old.body.len();
        }
        self.bytes += size;
        while self.bytes > max_bytes || self.by_question.len() > MAX_ENTRIES {
            self.evict();
        }
    }

    /// Forgets the older half, so that the search for it is rare.
    fn evict(&mut self) {
        let mut ages: Vec<u64> = self.by_question.values().map(|e| e.used).collect();
        ages.sort_unstable();
        let middle = ages.get(ages.len() / 2).copied().unwrap_or(u64::MAX);
        self.by_question.retain(|_, entry| entry.used > middle);
        self.bytes = self.by_question.values().map(|e| e.body.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn ask(cache: &Cache, question: &str, index: Index, body: &'static str) -> (Bytes, bool) {
        let mut encoded = false;
        let body = cache
            .get_or_encode(question.to_owned(), index, || {
                encoded = true;
                Ok::<_, Infallible>(Bytes::from_static(body.as_bytes()))
            })
            .unwrap();
        (body, encoded)
    }

    #[test]
    fn an_answer_is_encoded_once_per_index() {
        let cache = Cache::new(1000);
        assert_eq!(ask(&cache, "a", 1, "one"), ("one".into(), true));
        assert_eq!(ask(&cache, "a", 1, "other"), ("one".into(), false));
        assert_eq!(ask(&cache, "a", 2, "two"), ("two".into(), true));
        assert_eq!(ask(&cache, "b", 2, "b"), ("b".into(), true));
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let cache = Cache::new(100);
        for n in 0..50 {
            ask(&cache, &format!("q{n}"), 1, "0123456789");
            assert!(cache.entries.lock().bytes <= 100);
        }
        ask(&cache, "big", 1, "0123456789012345678901234567890");
        assert!(!cache.entries.lock().by_question.contains_key("big"));
        let (_, encoded) = ask(&cache, "q49", 1, "x");
        assert!(!encoded, "the newest stays");
    }
}
