//! A keyed work queue with the semantics of the Go client library.
//!
//! A key is handed to one worker at a time; a key added while it is worked on is handed out once
//! more afterwards; of several delayed adds the earliest counts; failures back off per key. The
//! queue is bounded by the number of distinct keys. Metrics carry the library's names
//! (specification: controllers §8.2, REQ-MET-02).

mod backoff;
mod metrics;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::Future,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures::future::join_all;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use backoff::Bucket;
use metrics::Series;

pub use backoff::Backoff;
pub use metrics::QueueMetrics;

/// What a delay too long for the clock becomes: longer than any process lives.
const FAR_FUTURE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a key must be.
pub trait Key: Ord + Clone + fmt::Debug + Send + Sync + 'static {}
impl<T: Ord + Clone + fmt::Debug + Send + Sync + 'static> Key for T {}

/// What a worker says of the key it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: the key's failures are forgotten.
    Done,
    /// Failed: again after the key's back-off.
    Retry,
    /// Again after exactly this time; the failure count neither grows nor is reset (REQ-SVC-16).
    RetryAfter(Duration),
}

struct State<K> {
    ready: VecDeque<K>,
    /// Waiting to be handed out, or added again while being worked on.
    dirty: BTreeMap<K, Instant>,
    processing: BTreeMap<K, Instant>,
    delayed: BTreeMap<(Instant, u64), K>,
    delayed_at: BTreeMap<K, (Instant, u64)>,
    failures: BTreeMap<K, u32>,
    bucket: Option<Bucket>,
    sequence: u64,
    closed: bool,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    wake: Notify,
    backoff: Backoff,
    metrics: Series,
}

/// The queue. Cheap to clone.
pub struct WorkQueue<K: Key>(Arc<Shared<K>>);

impl<K: Key> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue. `name` is the metric label.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &QueueMetrics) -> Self {
        let bucket = backoff.bucket.map(|(rate, burst)| Bucket::new(rate, burst));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: BTreeMap::new(),
                processing: BTreeMap::new(),
                delayed: BTreeMap::new(),
                delayed_at: BTreeMap::new(),
                failures: BTreeMap::new(),
                bucket,
                sequence: 0,
                closed: false,
            }),
            wake: Notify::new(),
            backoff,
            metrics: metrics.series(name),
        });
        let weak: Weak<Shared<K>> = Arc::downgrade(&shared);
        metrics.on_refresh(Box::new(move || {
            let Some(shared) = weak.upgrade() else {
                return false;
            };
            shared.refresh();
            true
        }));
        Self(shared)
    }

    /// Adds a key now. Does nothing if it already waits.
    pub fn add(&self, key: K) {
        let mut state = self.0.lock();
        self.0.add(&mut state, key);
    }

    /// Adds a key after a time. Of several delayed adds the earliest counts.
    pub fn add_after(&self, key: K, after: Duration) {
        let mut state = self.0.lock();
        self.0.add_after(&mut state, key, after);
    }

    /// Adds a key after its back-off and counts one more failure.
    pub fn add_rate_limited(&self, key: K) {
        let mut state = self.0.lock();
        self.0.add_rate_limited(&mut state, key);
    }

    /// Forgets the key's failures.
    pub fn forget(&self, key: &K) {
        self.0.lock().failures.remove(key);
    }

    /// Drops everything known of a key that is not being worked on: waiting, delayed, failures.
    pub fn remove(&self, key: &K) {
        let mut state = self.0.lock();
        state.failures.remove(key);
        if let Some(at) = state.delayed_at.remove(key) {
            state.delayed.remove(&at);
        }
        if state.dirty.remove(key).is_some() {
            state.ready.retain(|k| k != key);
            self.0.metrics.depth.set(depth(&state));
        }
    }

    /// How often the key failed in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.0.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// The back-off that the key's next failure brings, without what the shared bucket adds.
    pub fn back_off(&self, key: &K) -> Duration {
        self.0.backoff.delay(self.failures(key))
    }

    /// Keys that wait to be handed out now.
    pub fn len(&self) -> usize {
        self.0.lock().ready.len()
    }

    /// Whether no key waits to be handed out now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing waits, nothing is delayed and nothing is being worked on.
    pub fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.dirty.is_empty() && state.processing.is_empty() && state.delayed.is_empty()
    }

    /// Ends the queue: [`next`](Self::next) answers `None` at once, waiting keys are dropped.
    pub fn close(&self) {
        self.0.lock().closed = true;
        self.0.wake.notify_waiters();
        self.0.wake.notify_one();
    }

    /// The next key if one is ready now: to fill a batch without waiting for it.
    pub fn try_next(&self) -> Option<Work<K>> {
        let mut state = self.0.lock();
        if state.closed {
            return None;
        }
        self.take(&mut state)
    }

    /// Hands out the first ready key.
    fn take(&self, state: &mut State<K>) -> Option<Work<K>> {
        self.0.promote(state);
        let key = state.ready.pop_front()?;
        let now = Instant::now();
        if let Some(since) = state.dirty.remove(&key) {
            let waited = now.duration_since(since).as_secs_f64();
            self.0.metrics.queue_duration.observe(waited);
        }
        state.processing.insert(key.clone(), now);
        self.0.metrics.depth.set(depth(state));
        if !state.ready.is_empty() {
            self.0.wake.notify_one();
        }
        Some(Work {
            key,
            queue: Arc::clone(&self.0),
        })
    }

    /// The next key, `None` once the queue is closed. The key is done when the answer is dropped.
    pub async fn next(&self) -> Option<Work<K>> {
        loop {
            let notified = self.0.wake.notified();
            let deadline = {
                let mut state = self.0.lock();
                if state.closed {
                    // The next waiter must see it too.
                    self.0.wake.notify_one();
                    return None;
                }
                if let Some(work) = self.take(&mut state) {
                    return Some(work);
                }
                state.delayed.first_key_value().map(|((at, _), _)| *at)
            };
            match deadline {
                Some(at) => tokio::select! {
                    biased;
                    () = notified => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => notified.await,
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float; queues are far below 2^52"
)]
fn depth<K>(state: &State<K>) -> f64 {
    state.ready.len() as f64
}

impl<K: Key> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, state: &mut State<K>, key: K) {
        if state.closed || state.dirty.contains_key(&key) {
            return;
        }
        if let Some(at) = state.delayed_at.remove(&key) {
            state.delayed.remove(&at);
        }
        self.metrics.adds.inc();
        state.dirty.insert(key.clone(), Instant::now());
        if !state.processing.contains_key(&key) {
            state.ready.push_back(key);
            self.metrics.depth.set(depth(state));
            self.wake.notify_one();
        }
    }

    fn add_after(&self, state: &mut State<K>, key: K, after: Duration) {
        if after.is_zero() {
            return self.add(state, key);
        }
        if state.closed || state.dirty.contains_key(&key) {
            return;
        }
        let now = Instant::now();
        // An overflow would panic, and a panic ends the process.
        let at = now.checked_add(after).unwrap_or_else(|| now + FAR_FUTURE);
        if let Some(earlier) = state.delayed_at.get(&key) {
            if earlier.0 <= at {
                return;
            }
            state.delayed.remove(earlier);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.delayed.insert(slot, key.clone());
        state.delayed_at.insert(key, slot);
        self.wake.notify_one();
    }

    fn add_rate_limited(&self, state: &mut State<K>, key: K) {
        self.metrics.retries.inc();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        let own = self.backoff.delay(*failures);
        *failures = failures.saturating_add(1);
        let shared = state
            .bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.reserve(Instant::now()));
        self.add_after(state, key, own.max(shared));
    }

    /// Moves delayed keys that are due into the ready queue.
    fn promote(&self, state: &mut State<K>) {
        let now = Instant::now();
        while let Some((&slot, _)) = state.delayed.first_key_value() {
            if slot.0 > now {
                return;
            }
            if let Some(key) = state.delayed.remove(&slot) {
                state.delayed_at.remove(&key);
                self.add(state, key);
            }
        }
    }

    fn done(&self, key: &K) {
        let mut state = self.lock();
        if let Some(since) = state.processing.remove(key) {
            let worked = Instant::now().duration_since(since).as_secs_f64();
            self.metrics.work_duration.observe(worked);
        }
        if state.dirty.contains_key(key) && !state.closed {
            state.ready.push_back(key.clone());
            self.metrics.depth.set(depth(&state));
            self.wake.notify_one();
        }
    }

    fn refresh(&self) {
        let now = Instant::now();
        let state = self.lock();
        let running = state
            .processing
            .values()
            .map(|since| now.duration_since(*since).as_secs_f64());
        self.metrics
            .longest_running
            .set(running.clone().fold(0.0, f64::max));
        self.metrics.unfinished.set(running.sum());
    }
}

/// A key being worked on: nobody else gets it until this is dropped.
pub struct Work<K: Key> {
    key: K,
    queue: Arc<Shared<K>>,
}

impl<K: Key> Work<K> {
    /// Says what became of the key and ends the work on it.
    pub fn finish(self, outcome: Outcome) {
        let mut state = self.queue.lock();
        match outcome {
            Outcome::Done => {
                state.failures.remove(&self.key);
            }
            Outcome::Retry => self.queue.add_rate_limited(&mut state, self.key.clone()),
            Outcome::RetryAfter(after) => {
                self.queue.add_after(&mut state, self.key.clone(), after);
            }
        }
    }
}

impl<K: Key> Deref for Work<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Key> Drop for Work<K> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}

/// Works on the queue with `workers` tasks' worth of concurrency until `shutdown`. Keys being
/// worked on are finished, waiting ones are dropped.
pub async fn run_workers<K, F, Fut>(
    queue: &WorkQueue<K>,
    workers: usize,
    shutdown: &CancellationToken,
    work: F,
) where
    K: Key,
    F: Fn(K) -> Fut,
    Fut: Future<Output = Outcome>,
{
    let closer = async {
        shutdown.cancelled().await;
        queue.close();
    };
    let loops = join_all((0..workers).map(|_| async {
        while let Some(item) = queue.next().await {
            // The closer may not have had its turn yet.
            if shutdown.is_cancelled() {
                return;
            }
            let outcome = work(item.key.clone()).await;
            item.finish(outcome);
        }
    }));
    tokio::join!(closer, loops);
}
