//! What is remembered of each Service between two runs of its key.
//!
//! An entry stands from just before the first write for a Service until nothing of it is left in
//! the cloud (REQ-SVC-40). Besides the entries there are the answers to our own writes: until the
//! watch has caught up with one, it is the newer truth.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;

use super::{
    backends::Backends,
    metrics::Pass,
    predicates::{has_cleanup_finalizer, wants_load_balancer},
    status,
    targets::TargetSet,
};
use crate::{
    cloud::Note,
    kube::{LoadBalancerStatus, ObjectKey, Service, Store},
};

/// How far a Service has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// An ensure is due: not tried yet, failed, or overtaken by a failed host update.
    Pending,
    /// The last ensure succeeded.
    Settled,
    /// A delete was sent and has not succeeded yet. What the status said before is void.
    Deleting,
}

/// The back-off after a failure. Until it is over the same thing is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    /// When the next try is due.
    pub at: Instant,
    /// Whether a load balancer that stands may be given new backends meanwhile: not when the
    /// cloud asked for patience.
    pub hosts: bool,
}

/// One remembered Service.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The Service as the cloud was last asked for it.
    pub service: Arc<Service>,
    /// The Service as an ensure was last begun for it, with or without a cloud call.
    pub tried: Arc<Service>,
    /// The Service as the cloud last accepted it: good for host updates while a newer one fails.
    pub ensured: Option<Arc<Service>>,
    /// Whether an ensure was ever sent to the cloud.
    pub sent: bool,
    /// The back-off that runs.
    pub retry: Option<Retry>,
    /// How far it has come.
    pub phase: Phase,
    /// The status that the provider gave; `None` while unknown or when another controller
    /// answers for it.
    pub status: Option<LoadBalancerStatus>,
    /// The backends that the cloud was last given, stored before the call.
    pub targets: Option<TargetSet>,
    /// Whether these backends were refused: they are given again after the next failed ensure.
    pub hosts_owed: bool,
    /// Whether the labels of Nodes choose the backends.
    pub labels_matter: bool,
    /// The provider's last warnings: a verification repeats none.
    pub notes: Vec<Note>,
    /// When the cloud is asked again although nothing changed.
    pub verify_at: Instant,
    /// The node pass that waits for this Service.
    pub pass: Option<Arc<Pass>>,
}

impl Entry {
    pub(super) fn new(service: Arc<Service>, now: Instant) -> Self {
        Self {
            tried: Arc::clone(&service),
            service,
            ensured: None,
            sent: false,
            retry: None,
            hosts_owed: false,
            phase: Phase::Pending,
            status: None,
            targets: None,
            labels_matter: false,
            notes: Vec::new(),
            verify_at: now,
            pass: None,
        }
    }

    /// The back-off that still runs.
    pub(super) fn waiting(&self, now: Instant) -> Option<Retry> {
        self.retry.filter(|retry| now < retry.at)
    }

    /// Whether a node change may send a host update: the load balancer stands, and the cloud did
    /// not ask for patience. While an ensure fails, only within its back-off; without one, the
    /// next try takes the Nodes of its time.
    pub(super) fn takes_hosts(&self, now: Instant) -> bool {
        let waiting = self.waiting(now);
        match self.phase {
            Phase::Settled => waiting.is_none_or(|retry| retry.hosts),
            Phase::Pending => self.ensured.is_some() && waiting.is_some_and(|retry| retry.hosts),
            Phase::Deleting => false,
        }
    }

    /// Whether the status that we published was cleared by someone else.
    pub(super) fn lost_status(&self, service: &Service) -> bool {
        status::is_empty(&service.status.load_balancer)
            && self.status.as_ref().is_some_and(|s| !status::is_empty(s))
    }

    /// Whether something that we wrote was taken away, or the object was replaced.
    fn needs_repair(&self, service: &Service) -> bool {
        if self.service.uid() != service.uid() {
            return true;
        }
        self.phase == Phase::Settled
            && wants_load_balancer(service)
            && !service.is_deleting()
            && (!has_cleanup_finalizer(service) || self.lost_status(service))
    }
}

#[derive(Default)]
struct State {
    entries: BTreeMap<ObjectKey, Entry>,
    /// Answers to our own writes that the watch has not shown yet.
    written: BTreeMap<ObjectKey, Arc<Service>>,
    /// Keys being worked on or waiting for a retry.
    engaged: BTreeSet<ObjectKey>,
}

/// The memory of all Services. The lock is never held across an await.
#[derive(Default)]
pub(super) struct Memory(Mutex<State>);

impl Memory {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of what is remembered.
    pub(super) fn entry(&self, key: &ObjectKey) -> Option<Entry> {
        self.with(|state| state.entries.get(key).cloned())
    }

    /// Changes an entry; makes it first when there is none.
    pub(super) fn update(
        &self,
        key: &ObjectKey,
        service: &Arc<Service>,
        f: impl FnOnce(&mut Entry),
    ) {
        self.with(|state| {
            let entry = state
                .entries
                .entry(key.clone())
                .or_insert_with(|| Entry::new(Arc::clone(service), Instant::now()));
            f(entry);
        });
    }

    /// Changes an entry if there is one.
    pub(super) fn amend(&self, key: &ObjectKey, f: impl FnOnce(&mut Entry)) {
        self.with(|state| state.entries.get_mut(key).map(f));
    }

    /// Forgets a Service of which nothing was ever sent to the cloud. Whether it is forgotten.
    pub(super) fn drop_unsent(&self, key: &ObjectKey) -> bool {
        self.with(|state| {
            let unsent = state.entries.get(key).is_none_or(|entry| !entry.sent);
            if unsent {
                state.entries.remove(key);
            }
            unsent
        })
    }

    /// Forgets a Service.
    pub(super) fn drop_entry(&self, key: &ObjectKey) {
        self.with(|state| state.entries.remove(key));
    }

    /// The newest state of a Service that is known: the cache, or the answer to our own write
    /// when the watch has not caught up with it.
    pub(super) fn latest(&self, key: &ObjectKey, store: &Store<Service>) -> Option<Arc<Service>> {
        self.with(|state| {
            let cached = store.get(key)?;
            let written = state
                .written
                .get(key)
                .filter(|written| is_newer(written, &cached));
            Some(written.map_or(cached, Arc::clone))
        })
    }

    /// Keeps the answer to a write until the watch shows it.
    pub(super) fn wrote(&self, key: &ObjectKey, answer: Arc<Service>, store: &Store<Service>) {
        self.with(|state| {
            // The store changes before the listeners are told, so an object that still is there
            // will be told gone later: the answer cannot stay for ever.
            if store
                .get(key)
                .is_some_and(|cached| is_newer(&answer, &cached))
            {
                state.written.insert(key.clone(), answer);
            }
        });
    }

    /// Takes note of what the watch shows. Whether something of ours has to be repaired.
    pub(super) fn observe(&self, key: &ObjectKey, seen: &Service) -> bool {
        self.with(|state| {
            if let Some(written) = state.written.get(key) {
                if is_newer(written, seen) {
                    return false;
                }
                state.written.remove(key);
            }
            state
                .entries
                .get(key)
                .is_some_and(|entry| entry.needs_repair(seen))
        })
    }

    /// Takes note that the object is gone. Whether a load balancer of it is remembered.
    pub(super) fn observe_gone(&self, key: &ObjectKey) -> bool {
        self.with(|state| {
            state.written.remove(key);
            state.entries.contains_key(key)
        })
    }

    /// Whether no Service is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.with(|state| state.entries.is_empty())
    }

    /// Whether any Service chooses its backends by label.
    pub(super) fn any_labels_matter(&self) -> bool {
        self.with(|state| state.entries.values().any(|entry| entry.labels_matter))
    }

    /// The Services whose load balancers do not have these backends yet and may be given them.
    /// A Service that never had a load balancer, or is being deleted, is not among them: a node
    /// change must not cut its back-off short.
    pub(super) fn behind(&self, backends: &Backends, pass: &Arc<Pass>) -> Vec<ObjectKey> {
        self.with(|state| {
            let now = Instant::now();
            let mut behind = Vec::new();
            for (key, entry) in &mut state.entries {
                let current = backends.targets(entry.labels_matter);
                if entry.takes_hosts(now) && entry.targets != Some(current) {
                    entry.pass = Some(Arc::clone(pass));
                    behind.push(key.clone());
                }
            }
            behind
        })
    }

    /// Marks a key as being worked on.
    pub(super) fn engage(&self, key: &ObjectKey) {
        self.with(|state| state.engaged.insert(key.clone()));
    }

    /// Marks a key as done, or as gone.
    pub(super) fn disengage(&self, key: &ObjectKey) {
        self.with(|state| state.engaged.remove(key));
    }

    /// Ends the wait of a node pass for this Service.
    pub(super) fn leave_pass(&self, key: &ObjectKey) {
        // The last to leave ends the pass: outside the lock.
        let _pass = self.with(|state| state.entries.get_mut(key).and_then(|e| e.pass.take()));
    }

    /// Whether the key is being worked on or waits for a retry.
    pub(super) fn is_engaged(&self, key: &ObjectKey) -> bool {
        self.with(|state| state.engaged.contains(key))
    }
}

/// Whether `a` is a later version of the same object. Versions that are no numbers cannot be
/// compared; the cache is believed then.
fn is_newer(a: &Service, b: &Service) -> bool {
    let version = |service: &Service| -> Option<u128> {
        service.metadata.resource_version.as_ref()?.parse().ok()
    };
    a.uid() == b.uid() && matches!((version(a), version(b)), (Some(a), Some(b)) if a > b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::service::fixtures;

    #[test]
    fn versions_are_compared_as_numbers_of_one_object() {
        let at = |version: &str| {
            let mut service = fixtures::service();
            service.metadata.resource_version = Some(version.to_owned());
            service
        };
        assert!(is_newer(&at("10"), &at("9")));
        assert!(!is_newer(&at("9"), &at("10")));
        assert!(!is_newer(&at("9"), &at("9")));
        assert!(!is_newer(&at("b"), &at("a")));
        let mut other = at("11");
        other.metadata.uid = Some("uid-2".to_owned());
        assert!(!is_newer(&other, &at("10")));
    }

    /// REQ-SVC-40: a Service that vanished before its first finalizer write leaves nothing behind.
    #[tokio::test(start_paused = true)]
    async fn only_an_entry_of_which_nothing_was_sent_is_dropped_without_a_delete() {
        let memory = Memory::default();
        let service = Arc::new(fixtures::service());
        let key = ObjectKey::of(service.as_ref());
        memory.update(&key, &service, |entry| entry.phase = Phase::Pending);
        assert!(memory.drop_unsent(&key));
        assert!(memory.entry(&key).is_none());
        memory.update(&key, &service, |entry| entry.sent = true);
        assert!(!memory.drop_unsent(&key));
        assert!(memory.entry(&key).is_some());
    }
}
