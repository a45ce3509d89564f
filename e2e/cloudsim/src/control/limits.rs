//! How long calls take and how many of them are let in.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::selects;

/// Latency per action. The selector is the one of faults; if several match,
/// the longest matching one counts.
#[derive(Debug, Default)]
pub struct Latency {
    entries: Mutex<BTreeMap<String, Duration>>,
}

impl Latency {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every matching call wait before anything else happens. Zero removes the entry.
    pub fn set(&self, action: &str, latency: Duration) {
        if latency.is_zero() {
            self.lock().remove(action);
        } else {
            self.lock().insert(action.to_owned(), latency);
        }
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn of(&self, service: &str, action: &str) -> Option<Duration> {
        let entries = self.lock();
        let matching = entries
            .iter()
            .filter(|(selector, _)| selects(selector, service, action));
        matching.map(|(_, latency)| *latency).max()
    }
}

/// Token buckets per selector. A call takes one token from every bucket whose selector matches; a call
/// that finds an empty bucket is refused with the cloud's throttling error.
#[derive(Debug, Default)]
pub struct Throttles {
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn take(&mut self) -> bool {
        let now = Instant::now();
        let gained = now.duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.burst);
        self.filled = now;
        let admitted = self.tokens >= 1.0;
        if admitted {
            self.tokens -= 1.0;
        }
        admitted
    }
}

impl Throttles {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets in `burst` calls at once and `per_second` calls each second after that.
    pub fn set(&self, action: &str, per_second: f64, burst: f64) {
        let bucket = Bucket {
            per_second,
            burst,
            tokens: burst,
            filled: Instant::now(),
        };
        self.lock().insert(action.to_owned(), bucket);
    }

    /// Removes all limits.
    pub fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn admits(&self, service: &str, action: &str) -> bool {
        let mut buckets = self.lock();
        let matching = buckets
            .iter_mut()
            .filter(|(selector, _)| selects(selector, service, action));
        matching.fold(true, |admitted, (_, bucket)| bucket.take() && admitted)
    }
}
