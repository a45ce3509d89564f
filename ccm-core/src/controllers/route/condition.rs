//! The condition `NetworkUnavailable`, and whether it is to be written (specification: controllers
//! §5.5).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::NodeCondition as ApiCondition, apimachinery::pkg::apis::meta::v1::Time,
};

use crate::kube::{NETWORK_UNAVAILABLE, Node};

/// What the condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// All ranges have their route.
    Available,
    /// One has not.
    Unavailable,
}

impl Network {
    /// What is to be said of a Node that misses so many routes; `None` leaves the condition alone.
    pub(super) fn of(missing: Option<u32>) -> Option<Self> {
        missing.map(|count| {
            if count == 0 {
                Self::Available
            } else {
                Self::Unavailable
            }
        })
    }

    const fn texts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Available => ("False", "RouteCreated", "RouteController created a route"),
            Self::Unavailable => (
                "True",
                "NoRouteCreated",
                "RouteController failed to create a route",
            ),
        }
    }

    /// The condition's status.
    pub(super) const fn status(self) -> &'static str {
        self.texts().0
    }

    /// The condition to write.
    pub(super) fn condition(self, now: Timestamp) -> ApiCondition {
        let (status, reason, message) = self.texts();
        ApiCondition {
            type_: NETWORK_UNAVAILABLE.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
        }
    }

    /// Whether the Node says so already, by status and reason.
    fn is_shown_by(self, node: &Node) -> bool {
        let (status, reason, _) = self.texts();
        let shown = node
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == NETWORK_UNAVAILABLE);
        shown.is_some_and(|c| c.status == status && c.reason.as_deref() == Some(reason))
    }
}

/// A write that the cache has not shown yet.
#[derive(Debug)]
struct Write {
    said: Network,
    /// The Node's version that the write was decided on.
    before: Option<String>,
    /// The Node's version that the write made.
    after: Option<String>,
}

impl Write {
    /// Whether the cached Node is at least as new as the write.
    fn is_behind(&self, node: &Node) -> bool {
        let cached = node.metadata.resource_version.as_deref();
        let number = |version: Option<&str>| version.and_then(|text| text.parse::<u64>().ok());
        match (number(cached), number(self.after.as_deref())) {
            (Some(cached), Some(after)) => cached >= after,
            // Versions without an order: any other one is taken for a newer one.
            _ => cached != self.before.as_deref(),
        }
    }
}

/// What was written last, by UID, until the cache shows it: a cache that lags does not repeat a
/// write. Bounded by the Nodes that are in the cache.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<String, Write>);

impl Written {
    /// Whether this is to be written to this Node.
    pub(super) fn is_due(&mut self, node: &Node, wanted: Network) -> bool {
        match self.0.get(node.uid()) {
            Some(write) if !write.is_behind(node) => write.said != wanted,
            Some(_) => {
                self.0.remove(node.uid());
                !wanted.is_shown_by(node)
            }
            None => !wanted.is_shown_by(node),
        }
    }

    /// Remembers a write, with the version that it made.
    pub(super) fn remember(&mut self, node: &Node, said: Network, after: Option<String>) {
        let write = Write {
            said,
            before: node.metadata.resource_version.clone(),
            after,
        };
        self.0.insert(node.uid().to_owned(), write);
    }

    /// Forgets Nodes that are gone.
    pub(super) fn retain(&mut self, nodes: &[Arc<Node>]) {
        if self.0.is_empty() {
            return;
        }
        let mut left = BTreeMap::new();
        for node in nodes {
            if let Some((uid, write)) = self.0.remove_entry(node.uid()) {
                left.insert(uid, write);
            }
        }
        self.0 = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::NodeCondition;

    fn node(version: &str, condition: Option<(&str, &str)>) -> Node {
        let mut node = Node::default();
        node.metadata.uid = Some("u".to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        node.status.conditions = condition
            .into_iter()
            .map(|(status, reason)| NodeCondition {
                type_: NETWORK_UNAVAILABLE.into(),
                status: status.into(),
                reason: Some(reason.into()),
            })
            .collect();
        node
    }

    const GOOD: (&str, &str) = ("False", "RouteCreated");
    const BAD: (&str, &str) = ("True", "NoRouteCreated");
    const FOREIGN: (&str, &str) = ("False", "CalicoIsUp");

    /// REQ-ROUTE-12
    #[test]
    fn status_and_reason_decide_whether_the_condition_is_written() {
        for (shown, wanted, due) in [
            (None, Network::Available, true),
            (None, Network::Unavailable, true),
            (Some(GOOD), Network::Available, false),
            (Some(BAD), Network::Unavailable, false),
            (Some(FOREIGN), Network::Available, true),
            (Some(BAD), Network::Available, true),
            (Some(GOOD), Network::Unavailable, true),
        ] {
            let node = node("1", shown);
            assert_eq!(Written::default().is_due(&node, wanted), due, "{shown:?}");
        }
    }

    /// REQ-ROUTE-12
    #[test]
    fn a_cache_that_lags_does_not_repeat_a_write() {
        let mut written = Written::default();
        written.remember(&node("5", None), Network::Available, Some("9".to_owned()));
        for version in ["5", "8"] {
            let old = node(version, None);
            assert!(!written.is_due(&old, Network::Available), "{version}");
            assert!(written.is_due(&old, Network::Unavailable), "{version}");
        }
        assert!(!written.is_due(&node("9", Some(GOOD)), Network::Available));
        // Shown once, the cache alone counts, and a foreign reason after ours is replaced.
        assert!(written.0.is_empty());
        assert!(written.is_due(&node("10", Some(FOREIGN)), Network::Available));
    }

    #[test]
    fn a_foreign_reason_that_came_with_our_own_write_is_seen() {
        let mut written = Written::default();
        written.remember(&node("5", None), Network::Available, Some("9".to_owned()));
        assert!(written.is_due(&node("12", Some(FOREIGN)), Network::Available));
        // Without an order of versions another version is a newer one.
        written.remember(&node("a", None), Network::Available, Some("b".to_owned()));
        assert!(!written.is_due(&node("a", None), Network::Available));
        assert!(written.is_due(&node("c", Some(FOREIGN)), Network::Available));
    }

    #[test]
    fn nodes_that_are_gone_are_forgotten() {
        let mut written = Written::default();
        let here = Arc::new(node("1", None));
        let mut gone = node("1", None);
        gone.metadata.uid = Some("gone".to_owned());
        written.remember(&here, Network::Available, Some("2".to_owned()));
        written.remember(&gone, Network::Available, Some("2".to_owned()));
        written.retain(&[here]);
        assert_eq!(written.0.keys().collect::<Vec<_>>(), ["u"]);
    }

    /// REQ-ROUTE-11, REQ-ROUTE-17
    #[test]
    fn only_a_node_that_misses_no_route_is_available() {
        assert_eq!(Network::of(None), None);
        assert_eq!(Network::of(Some(0)), Some(Network::Available));
        assert_eq!(Network::of(Some(1)), Some(Network::Unavailable));
    }
}
