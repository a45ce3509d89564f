//! The backends of all Services, made once for many of them.
//!
//! With 100,000 Nodes and 1,000 Services the list of the eligible Nodes must not be made anew for
//! each look at a Service.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::targets::{TargetSet, eligible};
use crate::kube::{Node, Store};

/// A cluster below this has the newest list always.
const SMALL: usize = 100;

/// Nodes whose list may be one millisecond older than the newest change. To list and hash one takes
/// one to two microseconds, most of it for memory that no cache holds, so lists take a few percent
/// of a CPU, however large the cluster and however fast its Nodes change.
const NODES_A_MILLISECOND: usize = 20;

/// How old a list, or how short a pause between two passes over the Services, may be.
pub(super) fn patience(nodes: usize) -> Duration {
    if nodes < SMALL {
        return Duration::ZERO;
    }
    let milliseconds = u64::try_from(nodes / NODES_A_MILLISECOND);
    Duration::from_millis(milliseconds.unwrap_or(u64::MAX))
}

/// The eligible Nodes of one moment.
pub(super) struct Backends {
    nodes: Vec<Arc<Node>>,
    generation: u64,
    made: Instant,
    plain: OnceLock<TargetSet>,
    labelled: OnceLock<TargetSet>,
}

impl Backends {
    fn of(store: &Store<Node>) -> Self {
        // Before the list: a change between the two makes the list too old, not too new.
        let generation = store.generation();
        Self {
            nodes: eligible(store.list()),
            generation,
            made: Instant::now(),
            plain: OnceLock::new(),
            labelled: OnceLock::new(),
        }
    }

    /// The Nodes.
    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// What counts of them; with their labels when the labels matter.
    pub(super) fn targets(&self, with_labels: bool) -> TargetSet {
        let kept = if with_labels {
            &self.labelled
        } else {
            &self.plain
        };
        *kept.get_or_init(|| TargetSet::of(&self.nodes, with_labels))
    }
}

/// The newest list, as long as Services are worked on.
#[derive(Default)]
pub(super) struct Roster(Mutex<Option<Arc<Backends>>>);

impl Roster {
    /// The backends, at most [`patience`] old. Whatever is missed by that is told to the Services by
    /// the node pass, which follows each change that matters and makes the list anew.
    pub(super) fn current(&self, store: &Store<Node>) -> Arc<Backends> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let good = kept.as_ref().filter(|kept| {
            kept.generation == store.generation()
                || kept.made.elapsed() < patience(kept.nodes.len())
        });
        if let Some(good) = good {
            return Arc::clone(good);
        }
        let fresh = Arc::new(Backends::of(store));
        *kept = Some(Arc::clone(&fresh));
        fresh
    }

    /// The backends of now.
    pub(super) fn newest(&self, store: &Store<Node>) -> Arc<Backends> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref().filter(|k| k.generation == store.generation()) {
            Some(good) => Arc::clone(good),
            None => Arc::clone(kept.insert(Arc::new(Backends::of(store)))),
        }
    }

    /// Lets the list go when nobody needs it: it keeps old versions of Nodes in memory.
    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_clusters_have_patience() {
        assert_eq!(patience(99), Duration::ZERO);
        assert_eq!(patience(5_000), Duration::from_millis(250));
        assert_eq!(patience(100_000), Duration::from_secs(5));
    }
}
