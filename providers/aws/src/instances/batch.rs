//! Joins concurrent look-ups into one call (specification: aws §3.3).
//!
//! A window opens with the first key and closes when nothing came for a while, after a longest
//! time, or when it is full. All keys are asked for once; every caller gets its own answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_core::cloud::CloudError;
use futures::future::BoxFuture;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::{Instant, sleep_until},
};

/// The window closes when no key came for this long.
const IDLE: Duration = Duration::from_millis(100);
/// The window closes after this long, whatever comes.
const LONGEST: Duration = Duration::from_secs(1);
/// Windows being answered at once: enough to hide latency, too few to provoke throttling.
const PARALLEL: usize = 8;
/// Callers waiting to enter the window; more wait in turn.
const QUEUE: usize = 1024;

/// The answer for one key. Errors are shared by all who asked.
pub type Answer<V> = Result<V, Arc<CloudError>>;
/// The answers for all keys of one window.
pub type Answers<K, V> = BTreeMap<K, Answer<V>>;
/// What asks the cloud for the keys of one window.
pub type Ask<K, V> = Arc<dyn Fn(BTreeSet<K>) -> BoxFuture<'static, Answers<K, V>> + Send + Sync>;

struct Request<K, V> {
    keys: BTreeSet<K>,
    reply: oneshot::Sender<Answers<K, V>>,
}

/// See the module documentation. Its background task ends when the batcher is dropped.
pub struct Batcher<K, V> {
    requests: mpsc::Sender<Request<K, V>>,
}

impl<K, V> Batcher<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Starts the background task on the current runtime. `full` keys close a window.
    pub fn new(full: usize, ask: Ask<K, V>) -> Self {
        let (requests, inbox) = mpsc::channel(QUEUE);
        tokio::spawn(collect(inbox, full, ask));
        Self { requests }
    }

    /// The answers for `keys`. A key that is absent from the result got no answer, which happens
    /// only when the process shuts down or the asking task failed.
    pub async fn get(&self, keys: BTreeSet<K>) -> Answers<K, V> {
        if keys.is_empty() {
            return BTreeMap::new();
        }
        let (reply, answers) = oneshot::channel();
        if self.requests.send(Request { keys, reply }).await.is_err() {
            return BTreeMap::new();
        }
        answers.await.unwrap_or_default()
    }
}

async fn collect<K, V>(mut inbox: mpsc::Receiver<Request<K, V>>, full: usize, ask: Ask<K, V>)
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let slots = Arc::new(Semaphore::new(PARALLEL));
    while let Some(first) = inbox.recv().await {
        let window = fill(first, &mut inbox, full).await;
        // Closed never: the semaphore lives as long as this task.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let ask = Arc::clone(&ask);
        tokio::spawn(async move {
            answer(window, &ask).await;
            drop(slot);
        });
    }
}

/// Collects the requests of one window.
async fn fill<K: Ord + Clone, V>(
    first: Request<K, V>,
    inbox: &mut mpsc::Receiver<Request<K, V>>,
    full: usize,
) -> Vec<Request<K, V>> {
    let end = Instant::now() + LONGEST;
    let mut keys = first.keys.clone();
    let mut window = vec![first];
    while keys.len() < full {
        let quiet = end.min(Instant::now() + IDLE);
        tokio::select! {
            biased;
            next = inbox.recv() => match next {
                Some(request) => {
                    keys.extend(request.keys.iter().cloned());
                    window.push(request);
                }
                None => break,
            },
            () = sleep_until(quiet) => break,
        }
        // A steady trickle must not hold the window open.
        if Instant::now() >= end {
            break;
        }
    }
    window
}

async fn answer<K, V>(window: Vec<Request<K, V>>, ask: &Ask<K, V>)
where
    K: Ord + Clone,
    V: Clone,
{
    let keys = window
        .iter()
        .flat_map(|request| request.keys.iter().cloned())
        .collect();
    let answers = ask(keys).await;
    for request in window {
        let mine = answers
            .iter()
            .filter(|(key, _)| request.keys.contains(key))
            .map(|(key, answer)| (key.clone(), answer.clone()))
            .collect();
        // The caller may have gone.
        let _ = request.reply.send(mine);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::join_all;

    use super::*;

    type Calls = Arc<Mutex<Vec<(Duration, usize)>>>;

    fn batcher(full: usize) -> (Arc<Batcher<u32, u32>>, Calls) {
        let calls = Calls::default();
        let seen = Arc::clone(&calls);
        let start = Instant::now();
        let ask: Ask<u32, u32> = Arc::new(move |keys| {
            seen.lock().unwrap().push((start.elapsed(), keys.len()));
            Box::pin(async move { keys.into_iter().map(|key| (key, Ok(key * 2))).collect() })
        });
        (Arc::new(Batcher::new(full, ask)), calls)
    }

    /// REQ-AWS-INST-13
    #[tokio::test(start_paused = true)]
    async fn concurrent_lookups_share_one_call() {
        let (batcher, calls) = batcher(500);
        let answers = join_all((0..3).map(|key| {
            let batcher = Arc::clone(&batcher);
            async move {
                tokio::time::sleep(Duration::from_millis(u64::from(key) * 40)).await;
                batcher.get(BTreeSet::from([key])).await
            }
        }))
        .await;
        for (key, answer) in (0..3).zip(answers) {
            assert_eq!(answer.len(), 1);
            assert_eq!(*answer[&key].as_ref().unwrap(), key * 2);
        }
        assert_eq!(*calls.lock().unwrap(), [(Duration::from_millis(180), 3)]);
    }

    /// REQ-AWS-INST-14
    #[tokio::test(start_paused = true)]
    async fn a_full_window_closes_at_once() {
        let (batcher, calls) = batcher(500);
        join_all((0..501).map(|key| batcher.get(BTreeSet::from([key])))).await;
        let calls = calls.lock().unwrap();
        assert_eq!(calls.iter().map(|(_, keys)| keys).sum::<usize>(), 501);
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0], (Duration::ZERO, 500));
    }

    /// REQ-AWS-INST-15
    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_answered_after_a_second() {
        let (batcher, calls) = batcher(500);
        let trickle = (0..40).map(|key| {
            let batcher = Arc::clone(&batcher);
            async move {
                tokio::time::sleep(Duration::from_millis(u64::from(key) * 50)).await;
                batcher.get(BTreeSet::from([key])).await
            }
        });
        join_all(trickle).await;
        let calls = calls.lock().unwrap();
        assert_eq!(calls[0].0, Duration::from_secs(1));
        assert!(calls.len() <= 3, "{calls:?}");
    }

    /// REQ-AWS-INST-16
    #[tokio::test(start_paused = true)]
    async fn one_caller_with_several_keys_gets_one_result() {
        let (batcher, calls) = batcher(500);
        let answers = batcher.get((0..7).collect()).await;
        assert_eq!(answers.len(), 7);
        assert_eq!(calls.lock().unwrap().len(), 1);
        assert!(batcher.get(BTreeSet::new()).await.is_empty());
        assert_eq!(calls.lock().unwrap().len(), 1, "nothing asked, no call");
    }
}
