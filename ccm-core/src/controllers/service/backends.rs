//! The Nodes behind the load balancers, worked out once for all Services.
//!
//! A thousand Services look at the same Nodes: without this each of them would walk through all.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::targets::{self, TargetSet};
use crate::kube::{Change, Node, Store};

/// The current backends.
pub(super) struct Backends {
    /// The eligible Nodes, by name.
    pub nodes: Vec<Arc<Node>>,
    plain: OnceLock<TargetSet>,
    labelled: OnceLock<TargetSet>,
}

impl Backends {
    fn of(nodes: Vec<Arc<Node>>) -> Self {
        Self {
            nodes: targets::eligible(nodes),
            plain: OnceLock::new(),
            labelled: OnceLock::new(),
        }
    }

    /// What counts of them when they are compared.
    pub(super) fn targets(&self, with_labels: bool) -> TargetSet {
        let set = if with_labels {
            &self.labelled
        } else {
            &self.plain
        };
        *set.get_or_init(|| TargetSet::of(&self.nodes, with_labels))
    }
}

/// Where the current backends are kept.
pub(super) struct BackendsCache {
    store: Store<Node>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts the changes: what was worked out from before one is not kept.
    changes: u64,
    current: Option<Arc<Backends>>,
}

impl BackendsCache {
    pub(super) fn new(store: Store<Node>) -> Self {
        Self {
            store,
            state: Mutex::default(),
        }
    }

    /// The backends now.
    pub(super) fn get(&self) -> Arc<Backends> {
        let changes = {
            let state = self.lock();
            if let Some(current) = &state.current {
                return Arc::clone(current);
            }
            state.changes
        };
        let fresh = Arc::new(Backends::of(self.store.list()));
        let mut state = self.lock();
        if state.changes == changes {
            state.current = Some(Arc::clone(&fresh));
        }
        fresh
    }

    /// Takes note of a change of a Node, which the store shows already.
    pub(super) fn observe(&self, change: &Change<Node>) {
        if is_relevant(change) {
            self.forget();
        }
    }

    /// Works the backends out anew the next time. Also lets go of Nodes that the store has
    /// replaced since.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.changes += 1;
        state.current = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a provider or the choice of backends could see the difference: everything but the
/// conditions, which change with every heartbeat.
fn is_relevant(change: &Change<Node>) -> bool {
    let Change::Applied {
        old: Some(old),
        new,
    } = change
    else {
        return true;
    };
    let (before, after) = (&old.metadata, &new.metadata);
    before.uid != after.uid
        || before.deletion_timestamp != after.deletion_timestamp
        || before.labels != after.labels
        || before.annotations != after.annotations
        || old.spec != new.spec
        || old.status.addresses != new.status.addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{controllers::service::fixtures::node, kube::NodeCondition};

    #[test]
    fn a_heartbeat_is_not_relevant_and_a_label_is() {
        let old = Arc::new(node("a"));
        let change = |edit: fn(&mut Node)| {
            let mut new = node("a");
            edit(&mut new);
            is_relevant(&Change::Applied {
                old: Some(Arc::clone(&old)),
                new: Arc::new(new),
            })
        };
        assert!(!change(|node| {
            node.metadata.resource_version = Some("2".to_owned());
            node.status.conditions.push(NodeCondition::default());
        }));
        assert!(change(|node| node.spec.provider_id = Some("x".to_owned())));
        assert!(change(|node| node.status.addresses.clear()) || old.status.addresses.is_empty());
        assert!(change(|node| {
            node.metadata
                .labels
                .get_or_insert_default()
                .insert("a".to_owned(), "b".to_owned());
        }));
        assert!(is_relevant(&Change::Deleted(old)));
    }
}
