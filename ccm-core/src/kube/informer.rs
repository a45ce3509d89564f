//! One watch per kind, many listeners, deletes included.
//!
//! The client library's shared reflector delivers no deletes and no old objects; controllers need
//! both. Invariants: the store is replaced in one step at the end of a re-list (never transiently
//! empty), and whatever vanished while the watch was down is told as a delete.

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, Event},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::cached::{Cached, Wire};
use crate::runtime::{Backoff, Random};

/// Objects a page: the transient cost of a list is one decoded page.
const PAGE_SIZE: u32 = 50;

/// The API server ends a watch after at most this time and it goes on from the last version. Bounds
/// how long a watch whose connection is dead can stay unnoticed, for about one request a minute and
/// kind.
pub(super) const WATCH_SECONDS: u32 = 60;

/// A watch is shorter by up to this, so that the watches of several kinds do not end together.
const WATCH_SPREAD: f64 = 15.0;

/// Watch starts that may fail in a row before the watch is thrown away and begun with a new list:
/// an API server that answers 410 at the start of a watch would otherwise be asked the same
/// resource version for ever.
const START_FAILURES_BEFORE_RELIST: u32 = 3;

/// The pause after the first failure of a watch; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(800);

/// The longest pause: an API server that is back is noticed within ten seconds (CASE-OPS-01), one
/// that is away gets at most 25 requests in two minutes (CASE-OPS-02).
const LONGEST_PAUSE: Duration = Duration::from_secs(6);

/// How the pauses grow.
const PAUSES: Backoff = Backoff {
    base: FIRST_PAUSE,
    max: LONGEST_PAUSE,
    bucket: None,
};

/// A pause is up to this fraction longer, so that watches do not come back all at once.
const PAUSE_JITTER: f64 = 0.25;

/// A failure this long after the one before is a new trouble.
const TROUBLE_IS_OVER: Duration = Duration::from_secs(120);

/// `namespace/name`, or the name alone for cluster-scoped kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object.
    pub fn of<K: Cached>(object: &K) -> Self {
        Self::new(object.namespace(), object.name())
    }

    /// The key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// What a listener is told. `old` lets it decide whether anything it cares for has changed.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// Added (`old` is `None`), changed, or seen again by a re-list.
    Applied {
        /// The object before.
        old: Option<Arc<K>>,
        /// The object now.
        new: Arc<K>,
    },
    /// Gone; the last known state.
    Deleted(Arc<K>),
}

type Listener<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type Objects<K> = BTreeMap<ObjectKey, Arc<K>>;

/// A read handle on an informer's objects. Cheap to clone.
pub struct Store<K> {
    objects: Arc<RwLock<Objects<K>>>,
    generation: Arc<AtomicU64>,
    synced: watch::Receiver<bool>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            objects: Arc::clone(&self.objects),
            generation: Arc::clone(&self.generation),
            synced: self.synced.clone(),
        }
    }
}

impl<K> Store<K> {
    /// The object of that key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|objects| objects.get(key).cloned())
    }

    /// The cluster-scoped object of that name.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectKey::new("", name))
    }

    /// All objects, ordered by key.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read(|objects| objects.values().cloned().collect())
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read(BTreeMap::len)
    }

    /// A number that grows when an object comes, goes or changes in more than its version: while it
    /// is the same, what was made from the objects is still right.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is complete.
    pub fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Waits until the first list is complete. Never returns if the informer is dropped before.
    pub async fn wait_until_synced(&self) {
        let mut synced = self.synced.clone();
        if synced.wait_for(|done| *done).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn read<T>(&self, f: impl FnOnce(&Objects<K>) -> T) -> T {
        f(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The watch of one kind. Add listeners, then [`run`](Self::run) it.
///
/// A replica that does not lead keeps its store full and tells its listeners nothing: see
/// [`hold`](Self::hold).
pub struct Informer<K> {
    store: Store<K>,
    synced: watch::Sender<bool>,
    delivery: Mutex<Delivery<K>>,
    refresh: Refresh,
}

/// Lists that were asked for, by number.
struct Refresh {
    asked: AtomicU64,
    ask: Notify,
    /// What had been asked for when the present list was begun.
    begun: AtomicU64,
    done: watch::Sender<u64>,
}

impl Default for Refresh {
    fn default() -> Self {
        Self {
            asked: AtomicU64::new(0),
            ask: Notify::new(),
            begun: AtomicU64::new(0),
            done: watch::Sender::new(0),
        }
    }
}

struct Delivery<K> {
    listeners: Vec<Listener<K>>,
    held: bool,
}

impl<K> Default for Informer<K> {
    fn default() -> Self {
        let (sender, receiver) = watch::channel(false);
        Self {
            store: Store {
                objects: Arc::default(),
                generation: Arc::default(),
                synced: receiver,
            },
            synced: sender,
            delivery: Mutex::new(Delivery {
                listeners: Vec::new(),
                held: false,
            }),
            refresh: Refresh::default(),
        }
    }
}

impl<K> Informer<K>
where
    K: Cached,
{
    /// An informer without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// A read handle.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Adds a listener. It must not block: typically a predicate and a push into a work queue.
    /// All listeners must be there before [`run`](Self::run).
    pub fn listen(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.delivery().listeners.push(Box::new(listener));
    }

    /// From now on the store follows the API server and no listener is told anything.
    pub fn hold(&self) {
        self.delivery().held = true;
    }

    /// Tells the listeners of every object in the store as if it had just been added, and of every
    /// change from now on.
    pub fn release(&self) {
        let mut delivery = self.delivery();
        delivery.held = false;
        // A change that reached the store and not yet the listeners is told twice; none is lost.
        for new in self.store.list() {
            delivery.tell(&Change::Applied { old: None, new });
        }
    }

    /// Lists anew and returns once the store shows what the API server had at the time of this
    /// call, or something newer. For work that must not start from what a watch has not told yet.
    /// [`run`](Self::run) does it; without that it never returns.
    pub async fn refresh(&self) {
        let number = self.refresh.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.refresh.ask.notify_one();
        let mut done = self.refresh.done.subscribe();
        // The sender lives as long as we do.
        let _ = done.wait_for(|done| *done >= number).await;
    }

    /// Lists and watches until `shutdown`. Errors are logged and backed off, never returned.
    pub async fn run(&self, client: Client, random: Random, shutdown: CancellationToken) {
        let mut pauses = Pauses::new(random);
        let work = async {
            loop {
                let config = watcher::Config::default()
                    .page_size(PAGE_SIZE)
                    .timeout(pauses.watch_seconds());
                let asked = self.refresh.asked.load(Ordering::Acquire);
                self.refresh.begun.store(asked, Ordering::Release);
                let events = watcher::watcher(Api::<Wire<K>>::all(client.clone()), config);
                tokio::select! {
                    biased;
                    () = self.refresh.ask.notified() => {
                        tracing::debug!(kind = %K::Api::kind(&()), "listing anew");
                    }
                    () = self.follow(events, &mut pauses) => {
                        tracing::warn!(kind = %K::Api::kind(&()), "watch could not be resumed, listing again");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = work => {}
        }
    }

    /// Follows one event stream; returns when it has to be begun again with a list. The stream
    /// tries again as soon as it is asked for the next event, so it is not asked before the pause.
    async fn follow(
        &self,
        events: impl Stream<Item = watcher::Result<Event<Wire<K>>>>,
        pauses: &mut Pauses,
    ) {
        let mut events = pin!(events);
        let mut relisted = Vec::new();
        let mut start_failures = 0;
        while let Some(event) = events.next().await {
            let error = match event {
                Ok(event) => {
                    start_failures = 0;
                    if matches!(event, Event::Apply(_) | Event::Delete(_)) {
                        pauses.reset();
                    }
                    self.absorb(event, &mut relisted);
                    continue;
                }
                Err(error) => error,
            };
            let pause = pauses.next();
            tracing::warn!(
                kind = %K::Api::kind(&()),
                error = %watch_error(&error),
                retry_in = ?pause,
                "watch failed"
            );
            tokio::time::sleep(pause).await;
            if matches!(error, watcher::Error::WatchStartFailed(_)) {
                start_failures += 1;
                if start_failures >= START_FAILURES_BEFORE_RELIST {
                    return;
                }
            }
        }
    }

    fn absorb(&self, event: Event<Wire<K>>, relisted: &mut Vec<(ObjectKey, Arc<K>)>) {
        match event {
            Event::Apply(Wire { object, .. }) => self.apply(object),
            Event::Delete(Wire { object, .. }) => {
                let last = self.write(|objects| {
                    self.changed();
                    objects.remove(&ObjectKey::of(&object))
                });
                self.tell(&Change::Deleted(last.unwrap_or_else(|| Arc::new(object))));
            }
            Event::Init => relisted.clear(),
            Event::InitApply(Wire { object, .. }) => {
                let key = ObjectKey::of(&object);
                // What did not change is not kept twice while the list is not complete.
                let kept = self.store.get(&key).filter(|kept| **kept == object);
                relisted.push((key, kept.unwrap_or_else(|| Arc::new(object))));
            }
            Event::InitDone => {
                self.replace(std::mem::take(relisted));
                let begun = self.refresh.begun.load(Ordering::Acquire);
                self.refresh.done.send_replace(begun);
            }
        }
    }

    /// An object that changed in nothing but its version, as with a kubelet's heartbeat, takes the
    /// place of the one before it: nothing of it is kept but the version, and nobody is told.
    fn apply(&self, mut object: K) {
        let key = ObjectKey::of(&object);
        let told = self.write(|objects| {
            let Some(kept) = objects.get_mut(&key) else {
                let new = Arc::new(object);
                objects.insert(key, Arc::clone(&new));
                self.changed();
                return Some((None, new));
            };
            let newer = std::mem::replace(object.version_mut(), kept.version().clone());
            let unchanged = **kept == object;
            *object.version_mut() = newer;
            if unchanged {
                match Arc::get_mut(kept) {
                    Some(kept) => std::mem::swap(kept.version_mut(), object.version_mut()),
                    // Somebody works with it.
                    None => *kept = Arc::new(object),
                }
                return None;
            }
            self.changed();
            let new = Arc::new(object);
            Some((Some(std::mem::replace(kept, Arc::clone(&new))), new))
        });
        if let Some((old, new)) = told {
            self.tell(&Change::Applied { old, new });
        }
    }

    /// Ends a list.
    fn replace(&self, fresh: Vec<(ObjectKey, Arc<K>)>) {
        let told: Vec<Arc<K>> = fresh.iter().map(|(_, new)| Arc::clone(new)).collect();
        // In one go: a tree that grows by single steps is half empty.
        let fresh: Objects<K> = fresh.into_iter().collect();
        let mut before = self.write(|objects| {
            self.changed();
            std::mem::replace(objects, fresh)
        });
        // Synced before the listeners hear of it: what they start may read the store.
        self.synced.send_replace(true);
        for new in told {
            let old = before.remove(&ObjectKey::of(new.as_ref()));
            self.tell(&Change::Applied { old, new });
        }
        for gone in before.into_values() {
            self.tell(&Change::Deleted(gone));
        }
    }

    /// Under the lock of the objects.
    fn changed(&self) {
        self.store.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn write<T>(&self, f: impl FnOnce(&mut Objects<K>) -> T) -> T {
        f(&mut self
            .store
            .objects
            .write()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, change: &Change<K>) {
        let delivery = self.delivery();
        if !delivery.held {
            delivery.tell(change);
        }
    }

    fn delivery(&self) -> MutexGuard<'_, Delivery<K>> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Delivery<K> {
    fn tell(&self, change: &Change<K>) {
        for listener in &self.listeners {
            listener(change);
        }
    }
}

/// The pauses of one watch between its tries. A list that succeeds is no sign of health as long as
/// no watch does: only an event of a watch, or time, ends the trouble.
struct Pauses {
    random: Random,
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    const fn new(random: Random) -> Self {
        Self {
            random,
            failures: 0,
            last: None,
        }
    }

    /// How long the next watch may last.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a fraction of a small positive number"
    )]
    fn watch_seconds(&self) -> u32 {
        WATCH_SECONDS - (self.random.fraction() * WATCH_SPREAD) as u32
    }

    fn next(&mut self) -> Duration {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last > TROUBLE_IS_OVER) {
            self.failures = 0;
        }
        self.last = Some(now);
        let pause = PAUSES.delay(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.random.jitter(pause, PAUSE_JITTER)
    }

    const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A watch's error in one line: of the API server's answer only its message.
fn watch_error(error: &watcher::Error) -> String {
    match error {
        watcher::Error::WatchError(status) => status.message.clone(),
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status.message.clone(),
        other => error_chain(other),
    }
}

/// An error with all its causes, for a log field.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::Node;

    /// REQ-APP-16
    #[test]
    fn a_held_informer_fills_its_store_and_tells_everything_once_it_is_released() {
        let informer = Informer::<Node>::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        informer.listen(move |change| {
            let line = match change {
                Change::Applied { old, new } => format!("{} {}", new.name(), old.is_some()),
                Change::Deleted(last) => format!("{} gone", last.name()),
            };
            log.lock().unwrap().push(line);
        });
        informer.hold();
        let mut relisted = Vec::new();
        for event in [
            Event::Init,
            Event::InitApply(wire("a", "1", "x")),
            Event::InitApply(wire("b", "2", "x")),
            Event::InitDone,
            node("c", "3", "x"),
            Event::Delete(wire("b", "4", "x")),
        ] {
            informer.absorb(event, &mut relisted);
        }
        assert!(informer.store().has_synced());
        assert_eq!(informer.store().len(), 2);
        assert!(told.lock().unwrap().is_empty());
        informer.release();
        informer.absorb(node("a", "5", "y"), &mut relisted);
        assert_eq!(*told.lock().unwrap(), ["a false", "c false", "a true"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refreshed_store_shows_what_the_watch_has_not_told_yet() {
        let sim = ccm_kubesim::KubeSim::new(ccm_kubesim::Options::default());
        let join = |name: &str| {
            let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
            sim.apply_direct(node).unwrap();
        };
        join("a");
        let informer = Arc::new(Informer::<Node>::new());
        let (client, stop) = (
            Client::new(sim.service(), "default"),
            CancellationToken::new(),
        );
        let task = {
            let (informer, stop) = (Arc::clone(&informer), stop.clone());
            tokio::spawn(async move { informer.run(client, Random::seeded(1), stop).await })
        };
        informer.store().wait_until_synced().await;
        join("b");
        // Nothing else ran since: the watch cannot have told of it.
        assert_eq!(informer.store().len(), 1);
        informer.refresh().await;
        assert_eq!(informer.store().len(), 2);
        join("c");
        tokio::join!(informer.refresh(), informer.refresh());
        assert_eq!(informer.store().len(), 3);
        stop.cancel();
        task.await.unwrap();
    }

    /// CASE-OPS-02
    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_is_asked_at_most_25_times_in_two_minutes() {
        let mut pauses = Pauses::new(Random::seeded(1));
        let start = Instant::now();
        let mut tries = 0;
        while start.elapsed() < Duration::from_secs(120) {
            tries += 1;
            let pause = pauses.next();
            assert!(
                pause < Duration::from_secs(10),
                "noticed too late: {pause:?}"
            );
            tokio::time::sleep(pause).await;
        }
        assert!((15..=25).contains(&tries), "{tries}");
        pauses.reset();
        assert!(pauses.next() <= FIRST_PAUSE.mul_f64(1.0 + PAUSE_JITTER));
        pauses.next();
        tokio::time::sleep(TROUBLE_IS_OVER * 2).await;
        assert!(pauses.next() <= FIRST_PAUSE.mul_f64(1.0 + PAUSE_JITTER));
    }

    fn node(name: &str, version: &str, label: &str) -> Event<Wire<Node>> {
        Event::Apply(wire(name, version, label))
    }

    fn wire(name: &str, version: &str, label: &str) -> Wire<Node> {
        let metadata = json!({
            "name": name,
            "resourceVersion": version,
            "labels": { "pool": label },
            "managedFields": [{ "manager": "kubelet" }],
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn a_new_version_without_a_change_is_kept_in_the_same_memory() {
        let informer = Informer::<Node>::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&told);
        informer.listen(move |change| {
            let Change::Applied { old, new } = change else {
                panic!("{change:?}")
            };
            let same = old.as_ref().map(|old| Arc::ptr_eq(old, new));
            listener.lock().unwrap().push(same);
        });
        let store = informer.store();
        let version = || store.named("a").unwrap().metadata.resource_version.clone();
        let memory = || Arc::as_ptr(&store.named("a").unwrap());
        informer.absorb(node("a", "1", "x"), &mut Vec::new());
        let (first, generation) = (memory(), store.generation());
        informer.absorb(node("a", "2", "x"), &mut Vec::new());
        assert_eq!((version().as_deref(), memory()), (Some("2"), first));
        // Somebody works with it: what he has does not change under his hands.
        let held = store.named("a").unwrap();
        informer.absorb(node("a", "3", "x"), &mut Vec::new());
        assert_eq!(held.metadata.resource_version.as_deref(), Some("2"));
        assert_eq!(version().as_deref(), Some("3"));
        assert_eq!(store.generation(), generation);
        informer.absorb(node("a", "4", "y"), &mut Vec::new());
        assert_ne!(store.generation(), generation);
        assert_eq!(
            *told.lock().unwrap(),
            [None, Some(false)],
            "a new version alone is told to nobody"
        );
    }

    #[test]
    fn a_new_list_keeps_what_did_not_change() {
        let informer = Informer::<Node>::new();
        let store = informer.store();
        let list = |items: [Wire<Node>; 2]| {
            let mut relisted = Vec::new();
            informer.absorb(Event::Init, &mut relisted);
            for item in items {
                informer.absorb(Event::InitApply(item), &mut relisted);
            }
            informer.absorb(Event::InitDone, &mut relisted);
        };
        list([wire("a", "1", "x"), wire("b", "2", "x")]);
        let kept = ["a", "b"].map(|name| store.named(name).unwrap());
        list([wire("a", "1", "x"), wire("b", "3", "y")]);
        let same = ["a", "b"].map(|name| store.named(name).unwrap());
        assert!(Arc::ptr_eq(&kept[0], &same[0]));
        assert!(!Arc::ptr_eq(&kept[1], &same[1]));
        assert_eq!(same[1].label("pool"), Some("y"));
    }
}
