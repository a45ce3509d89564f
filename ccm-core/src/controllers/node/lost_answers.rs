//! Initialisations that were sent and whose answer did not arrive.
//!
//! The write may have been applied, now or a little later. Its Node then has no cloud taint any
//! more, and would lack what follows the write: addresses, the event, the series (REQ-NODE-19,
//! REQ-NODE-25). Kept in memory only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::kube::Node;

/// Nodes that are remembered: as many as the largest clusters have.
const MOST: usize = 100_000;

/// The provider id that was sent, or was there already, by Node UID. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct LostAnswers(Arc<Mutex<BTreeMap<String, Option<String>>>>);

impl LostAnswers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to the initialisation of this Node was lost; if it was applied, the Node has
    /// this provider id.
    pub(super) fn remember(&self, node: &Node, provider_id: Option<&str>) {
        let mut lost = self.lock();
        lost.insert(node.uid().to_owned(), provider_id.map(str::to_owned));
        if lost.len() > MOST {
            lost.pop_first();
        }
    }

    /// Whether an answer about this Node was lost.
    pub(super) fn contains(&self, node: &Node) -> bool {
        self.lock().contains_key(node.uid())
    }

    /// Whether this Node, which has no cloud taint, lost it by a write whose answer was lost.
    pub(super) fn explain(&self, node: &Node) -> bool {
        self.lock()
            .get(node.uid())
            .is_some_and(|id| id.as_deref() == node.provider_id())
    }

    /// The question is settled, or the Node is gone.
    pub(super) fn forget(&self, node: &Node) {
        self.lock().remove(node.uid());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, id: Option<&str>) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some(uid.to_owned());
        node.spec.provider_id = id.map(str::to_owned);
        node
    }

    #[test]
    fn only_the_node_that_has_what_was_sent_is_explained() {
        let lost = LostAnswers::default();
        lost.remember(&node("u1", None), Some("sim://1"));
        assert!(lost.contains(&node("u1", None)));
        assert!(lost.explain(&node("u1", Some("sim://1"))));
        assert!(!lost.explain(&node("u1", Some("sim://2"))));
        assert!(!lost.explain(&node("u1", None)));
        assert!(!lost.explain(&node("u2", Some("sim://1"))));
        lost.forget(&node("u1", None));
        assert!(!lost.contains(&node("u1", None)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let lost = LostAnswers::default();
        for n in 0..MOST + 10 {
            lost.remember(&node(&format!("u{n}"), None), None);
        }
        assert_eq!(lost.lock().len(), MOST);
    }
}
