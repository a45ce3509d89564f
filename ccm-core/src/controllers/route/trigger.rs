//! What begins a pass, and how far apart passes are (specification: controllers §5.2).

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::kube::{Change, Node};

/// In watch mode a pass begins at the earliest this long after the one before.
pub(super) const PASS_SPACING: Duration = Duration::from_secs(10);

/// What began a pass: the key of the queue and the label of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trigger {
    /// A Node came, went or changed in what routes are made of.
    NodeChange,
    /// The clock, or a list of all Nodes.
    Periodic,
}

impl Trigger {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::NodeChange => "node_change",
            Self::Periodic => "periodic",
        }
    }

    /// What this change begins; `None` for one that routes have nothing to do with.
    pub(super) fn of(change: &Change<Node>) -> Option<Self> {
        let Change::Applied { old, new } = change else {
            return Some(Self::NodeChange);
        };
        let Some(old) = old else {
            return Some(Self::NodeChange);
        };
        // Another Node of the same name lacks the condition, even with the same range.
        let is_other = old.uid() != new.uid()
            || old.spec.pod_cidrs != new.spec.pod_cidrs
            || old.status.addresses != new.status.addresses;
        if is_other {
            return Some(Self::NodeChange);
        }
        let is_seen_again = old.metadata.resource_version == new.metadata.resource_version;
        is_seen_again.then_some(Self::Periodic)
    }
}

/// How far apart passes are, whatever began them. It knows only when the last pass began: a burst
/// of events leaves nothing to be paid off later (REQ-ROUTE-20).
#[derive(Clone, Debug, Default)]
pub(super) struct Pace(Arc<Mutex<Option<Instant>>>);

impl Pace {
    /// A pass begins now.
    pub(super) fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long until the next pass may begin.
    pub(super) fn wait(&self) -> Duration {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map_or(Duration::ZERO, |last| {
            PASS_SPACING.saturating_sub(last.elapsed())
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeAddress;

    use super::*;

    fn node(version: &str, change: impl FnOnce(&mut Node)) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.uid = Some("u".to_owned());
        node.metadata.resource_version = Some(version.to_owned());
        change(&mut node);
        Arc::new(node)
    }

    /// REQ-ROUTE-14, REQ-ROUTE-19
    #[test]
    fn only_what_routes_are_made_of_begins_a_pass() {
        let old = node("1", |_| {});
        let applied = |new: Arc<Node>| {
            let old = Some(Arc::clone(&old));
            Trigger::of(&Change::Applied { old, new })
        };
        let ranges = node("2", |n| n.spec.pod_cidrs = vec!["10.0.1.0/24".to_owned()]);
        let addresses = node("2", |n| {
            n.status.addresses = vec![NodeAddress {
                type_: "InternalIP".to_owned(),
                address: "10.1.0.1".to_owned(),
            }];
        });
        let other = node("2", |n| n.metadata.uid = Some("v".to_owned()));
        for changed in [ranges, addresses, other] {
            assert_eq!(applied(changed), Some(Trigger::NodeChange));
        }
        let labels = node("2", |n| n.metadata.labels = Some([].into()));
        assert_eq!(applied(labels), None);
        assert_eq!(applied(node("1", |_| {})), Some(Trigger::Periodic));
        let new = node("1", |_| {});
        let added = Change::Applied { old: None, new };
        assert_eq!(Trigger::of(&added), Some(Trigger::NodeChange));
        let gone = Change::Deleted(Arc::clone(&old));
        assert_eq!(Trigger::of(&gone), Some(Trigger::NodeChange));
    }

    /// REQ-ROUTE-20
    #[tokio::test(start_paused = true)]
    async fn the_pace_counts_from_the_last_begin_only() {
        let pace = Pace::default();
        assert_eq!(pace.wait(), Duration::ZERO);
        pace.begin();
        assert_eq!(pace.wait(), PASS_SPACING);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(pace.wait(), Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(pace.wait(), Duration::ZERO);
    }
}
