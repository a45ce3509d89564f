//! Which Nodes stand behind the load balancers, and which changes of a Node matter
//! (specification: controllers §4.7, §4.8).

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use crate::kube::{Node, StringMap};

/// The label that keeps a Node out of all load balancers.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The taint of a Node that the cluster autoscaler is about to delete.
pub const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// What Go's `strconv.ParseBool` reads as false.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

fn is_excluded(node: &Node) -> bool {
    node.label(EXCLUDE_LABEL)
        .is_some_and(|value| !FALSE.contains(&value))
}

/// Whether the Node is a backend. Readiness, cordons, missing provider ids and the Service's
/// traffic policy are not looked at: health checks choose among the backends.
pub fn is_eligible(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_none()
        && !is_excluded(node)
        && !node
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == AUTOSCALER_TAINT)
}

/// The backends among all Nodes, in the order given.
pub fn eligible(nodes: Vec<Arc<Node>>) -> Vec<Arc<Node>> {
    nodes.into_iter().filter(|node| is_eligible(node)).collect()
}

/// Whether a changed Node makes every Service's backends be compared.
pub fn is_trigger(old: &Node, new: &Node) -> bool {
    is_excluded(old) != is_excluded(new) || old.provider_id() != new.provider_id()
}

/// Whether the labels of a Node changed: a trigger for Services whose backends are chosen by
/// label.
pub fn labels_changed(old: &Node, new: &Node) -> bool {
    labels(old) != labels(new)
}

/// None and empty are equal.
fn labels(node: &Node) -> Option<&StringMap> {
    node.metadata
        .labels
        .as_ref()
        .filter(|labels| !labels.is_empty())
}

/// What counts of the backends when two sets are compared: their names, provider ids and, where
/// they matter, labels. Only a digest is kept, so that a set costs the same for any number of
/// Nodes; two different sets look the same once in 2^128 times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetSet {
    count: usize,
    digest: [u64; 2],
}

impl TargetSet {
    /// The set of these backends, in any order; with their labels when the labels matter.
    pub fn of(nodes: &[Arc<Node>], with_labels: bool) -> Self {
        let mut digest = [0_u64; 2];
        for node in nodes {
            for (half, sum) in (0_u8..).zip(&mut digest) {
                *sum = sum.wrapping_add(hash(half, node, with_labels));
            }
        }
        Self {
            count: nodes.len(),
            digest,
        }
    }
}

fn hash(half: u8, node: &Node, with_labels: bool) -> u64 {
    let labels = labels(node).filter(|_| with_labels);
    let mut hasher = DefaultHasher::new();
    (half, node.name(), node.provider_id(), with_labels, labels).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Time};

    use super::*;
    use crate::{controllers::service::fixtures::node, kube::NodeCondition};

    type Edit = fn(&mut Node);

    fn label(node: &mut Node, key: &str, value: &str) {
        node.metadata
            .labels
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
    }

    fn taint(node: &mut Node, key: &str) {
        node.spec.taints.push(Taint {
            key: key.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
    }

    fn not_ready(node: &mut Node) {
        node.status.conditions.push(NodeCondition {
            type_: "Ready".into(),
            status: "False".into(),
            reason: None,
        });
    }

    fn deleting(node: &mut Node) {
        node.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
    }

    /// REQ-SVC-21, REQ-SVC-22, REQ-SVC-23. The Service is not an argument, so its traffic policy
    /// cannot matter.
    #[test]
    fn a_node_is_a_backend_unless_deleted_excluded_or_about_to_be_scaled_away() {
        let cases: [(&str, Edit, bool); 17] = [
            ("plain", |_| {}, true),
            ("deleting", deleting, false),
            ("autoscaler", |n| taint(n, AUTOSCALER_TAINT), false),
            ("other taint", |n| taint(n, "node.kubernetes.io/x"), true),
            (
                "cordoned",
                |n| taint(n, "node.kubernetes.io/unschedulable"),
                true,
            ),
            (
                "uninitialised",
                |n| taint(n, "node.cloudprovider.kubernetes.io/uninitialized"),
                true,
            ),
            ("not ready", not_ready, true),
            ("no provider id", |n| n.spec.provider_id = None, true),
            (
                "control plane",
                |n| label(n, "node-role.kubernetes.io/control-plane", ""),
                true,
            ),
            ("exclude empty", |n| label(n, EXCLUDE_LABEL, ""), false),
            ("exclude true", |n| label(n, EXCLUDE_LABEL, "true"), false),
            ("exclude 1", |n| label(n, EXCLUDE_LABEL, "1"), false),
            ("exclude foo", |n| label(n, EXCLUDE_LABEL, "foo"), false),
            ("exclude fAlse", |n| label(n, EXCLUDE_LABEL, "fAlse"), false),
            ("exclude false", |n| label(n, EXCLUDE_LABEL, "false"), true),
            ("exclude F", |n| label(n, EXCLUDE_LABEL, "F"), true),
            ("exclude 0", |n| label(n, EXCLUDE_LABEL, "0"), true),
        ];
        for (what, edit, want) in cases {
            let mut node = node("heron-1");
            edit(&mut node);
            assert_eq!(is_eligible(&node), want, "{what}");
        }
    }

    /// REQ-SVC-24, REQ-SVC-25
    #[test]
    fn only_exclusion_and_provider_id_trigger() {
        let cases: [(&str, Edit, bool); 11] = [
            ("nothing", |_| {}, false),
            ("excluded", |n| label(n, EXCLUDE_LABEL, ""), true),
            (
                "excluded false",
                |n| label(n, EXCLUDE_LABEL, "false"),
                false,
            ),
            ("id cleared", |n| n.spec.provider_id = None, true),
            (
                "id empty",
                |n| n.spec.provider_id = Some(String::new()),
                true,
            ),
            (
                "id changed",
                |n| n.spec.provider_id = Some("fake:///other".to_owned()),
                true,
            ),
            ("autoscaler", |n| taint(n, AUTOSCALER_TAINT), false),
            ("taint", |n| taint(n, "x"), false),
            ("ready", not_ready, false),
            ("label", |n| label(n, "a", "b"), false),
            ("deleting", deleting, false),
        ];
        for (what, edit, want) in cases {
            let old = node("heron-1");
            let mut new = old.clone();
            edit(&mut new);
            assert_eq!(is_trigger(&old, &new), want, "{what}");
            assert_eq!(is_trigger(&new, &old), want, "{what}, back");
            // Whatever else the Node is in.
            taint(&mut new, AUTOSCALER_TAINT);
            not_ready(&mut new);
            assert_eq!(
                is_trigger(&old, &new),
                want,
                "{what}, not ready and tainted"
            );
        }
    }

    /// REQ-SVC-26
    #[test]
    fn two_sets_are_equal_when_names_and_provider_ids_are() {
        let set = |nodes: &[Node], labels| {
            let nodes: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
            TargetSet::of(&nodes, labels)
        };
        let (a, b) = (node("a"), node("b"));
        let mut late = a.clone();
        late.spec.provider_id = None;
        let mut labelled = a.clone();
        label(&mut labelled, "pool", "edge");
        assert_eq!(
            set(&[a.clone(), b.clone()], false),
            set(&[b.clone(), a.clone()], false)
        );
        assert_ne!(
            set(std::slice::from_ref(&a), false),
            set(&[a.clone(), b], false)
        );
        assert_ne!(set(std::slice::from_ref(&a), false), set(&[late], false));
        assert_eq!(
            set(std::slice::from_ref(&a), false),
            set(std::slice::from_ref(&labelled), false)
        );
        assert_ne!(set(&[a], true), set(&[labelled], true));
    }

    #[test]
    fn a_label_change_is_seen() {
        let old = node("a");
        let mut new = old.clone();
        new.metadata.labels = Some(StringMap::new());
        assert!(!labels_changed(&old, &new), "none and empty are equal");
        label(&mut new, "pool", "edge");
        assert!(labels_changed(&old, &new));
    }
}
