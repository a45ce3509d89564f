//! Which labels a Node gets from the cloud (specification: controllers §2.3 step 7, §2.5). Pure.

use std::collections::BTreeMap;

use crate::{cloud::InstanceMetadata, kube::Node};

/// The old and the new name of one label. The old one is the source of truth.
struct Pair {
    beta: &'static str,
    stable: &'static str,
}

const INSTANCE_TYPE: Pair = Pair {
    beta: "beta.kubernetes.io/instance-type",
    stable: "node.kubernetes.io/instance-type",
};
const ZONE: Pair = Pair {
    beta: "failure-domain.beta.kubernetes.io/zone",
    stable: "topology.kubernetes.io/zone",
};
const REGION: Pair = Pair {
    beta: "failure-domain.beta.kubernetes.io/region",
    stable: "topology.kubernetes.io/region",
};

/// An additional label of the provider that is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ignored {
    /// Its key belongs to Kubernetes.
    Reserved(String),
    /// The Node has the key with another value.
    Taken(String),
}

/// Labels to set, and what is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelChanges {
    pub(super) set: BTreeMap<String, String>,
    pub(super) ignored: Vec<Ignored>,
}

/// What initialisation sets: both names of type, zone and region, overwriting; additional labels
/// only where the Node has none of that key (REQ-NODE-07, REQ-NODE-08).
pub(super) fn initial(node: &Node, metadata: &InstanceMetadata) -> LabelChanges {
    let mut changes = LabelChanges {
        set: well_known(metadata),
        ignored: Vec::new(),
    };
    for (key, value) in &metadata.additional_labels {
        if is_reserved(key) {
            changes.ignored.push(Ignored::Reserved(key.clone()));
            continue;
        }
        match node.label(key) {
            None => {
                changes.set.insert(key.clone(), value.clone());
            }
            Some(current) if current != value => {
                changes.ignored.push(Ignored::Taken(key.clone()));
            }
            Some(_) => {}
        }
    }
    drop_equal(node, &mut changes.set);
    changes
}

/// What the opt-in refresh sets: whatever the cloud says and the Node does not have so. Nothing is
/// ever removed; reserved keys never come from additional labels (REQ-NODE-28).
pub(super) fn refreshed(node: &Node, metadata: &InstanceMetadata) -> BTreeMap<String, String> {
    let mut set = well_known(metadata);
    set.extend(
        metadata
            .additional_labels
            .iter()
            .filter(|(key, _)| !is_reserved(key))
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    drop_equal(node, &mut set);
    set
}

/// New names that have to follow their old ones. A missing old name changes nothing (REQ-NODE-22).
pub(super) fn drifted_pairs(node: &Node) -> BTreeMap<String, String> {
    [INSTANCE_TYPE, ZONE, REGION]
        .iter()
        .filter_map(|pair| {
            let source = node.label(pair.beta)?;
            (node.label(pair.stable) != Some(source))
                .then(|| (pair.stable.to_owned(), source.to_owned()))
        })
        .collect()
}

fn well_known(metadata: &InstanceMetadata) -> BTreeMap<String, String> {
    let mut set = BTreeMap::new();
    for (pair, value) in [
        (INSTANCE_TYPE, &metadata.instance_type),
        (ZONE, &metadata.zone),
        (REGION, &metadata.region),
    ] {
        if !value.is_empty() {
            set.insert(pair.beta.to_owned(), value.clone());
            set.insert(pair.stable.to_owned(), value.clone());
        }
    }
    set
}

fn drop_equal(node: &Node, set: &mut BTreeMap<String, String>) {
    set.retain(|key, value| node.label(key) != Some(value.as_str()));
}

/// Whether the key matches `(^|\.)(kubernetes|k8s)\.io/`, the namespaces that belong to Kubernetes.
fn is_reserved(key: &str) -> bool {
    ["kubernetes.io/", "k8s.io/"].iter().any(|domain| {
        key.match_indices(domain).any(|(at, _)| {
            key.get(..at)
                .is_some_and(|head| head.is_empty() || head.ends_with('.'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn node(pairs: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        node.metadata.labels = Some(labels(pairs).into());
        node
    }

    /// REQ-NODE-08
    #[test]
    fn keys_of_kubernetes_are_reserved() {
        for (key, reserved) in [
            ("topology.kubernetes.io/region", true),
            ("topology.k8s.io/region", true),
            ("kubernetes.io/region", true),
            ("k8s.io/region", true),
            ("foo.kubernetes.io/x", true),
            ("a/b.k8s.io/c", true),
            ("app.k8snio/bar", false),
            ("k8snio/bar", false),
            ("topology.k8s.cp/x", false),
            ("kubernetes.io", false),
            ("mykubernetes.io/x", false),
            ("example.com/x", false),
        ] {
            assert_eq!(is_reserved(key), reserved, "{key}");
        }
    }

    /// REQ-NODE-07
    #[test]
    fn type_zone_and_region_are_written_as_pairs_and_empty_ones_not_at_all() {
        let metadata = InstanceMetadata {
            instance_type: "m6.large".to_owned(),
            zone: "z-1".to_owned(),
            ..InstanceMetadata::default()
        };
        let old = node(&[("topology.kubernetes.io/zone", "z-0"), ("mine", "x")]);
        assert_eq!(
            initial(&old, &metadata).set,
            labels(&[
                ("beta.kubernetes.io/instance-type", "m6.large"),
                ("failure-domain.beta.kubernetes.io/zone", "z-1"),
                ("node.kubernetes.io/instance-type", "m6.large"),
                ("topology.kubernetes.io/zone", "z-1"),
            ])
        );
        let region = InstanceMetadata {
            region: "r".to_owned(),
            ..InstanceMetadata::default()
        };
        assert_eq!(
            initial(&node(&[]), &region).set,
            labels(&[
                ("failure-domain.beta.kubernetes.io/region", "r"),
                ("topology.kubernetes.io/region", "r"),
            ])
        );
        assert!(initial(&old, &InstanceMetadata::default()).set.is_empty());
    }

    /// REQ-NODE-08 (upstream's own table)
    #[test]
    fn additional_labels_neither_overwrite_nor_enter_reserved_namespaces() {
        let metadata = InstanceMetadata {
            additional_labels: labels(&[
                ("topology.kubernetes.io/region", "x"),
                ("topology.k8s.io/region", "x"),
                ("kubernetes.io/region", "x"),
                ("k8s.io/region", "x"),
                ("my.custom/taken", "theirs"),
                ("my.custom/same", "same"),
                ("app.k8snio/bar", "1"),
                ("k8snio/bar", "2"),
            ]),
            ..InstanceMetadata::default()
        };
        let changes = initial(
            &node(&[("my.custom/taken", "mine"), ("my.custom/same", "same")]),
            &metadata,
        );
        assert_eq!(
            changes.set,
            labels(&[("app.k8snio/bar", "1"), ("k8snio/bar", "2")])
        );
        assert_eq!(
            changes.ignored,
            [
                Ignored::Reserved("k8s.io/region".to_owned()),
                Ignored::Reserved("kubernetes.io/region".to_owned()),
                Ignored::Taken("my.custom/taken".to_owned()),
                Ignored::Reserved("topology.k8s.io/region".to_owned()),
                Ignored::Reserved("topology.kubernetes.io/region".to_owned()),
            ]
        );
    }

    /// REQ-NODE-22
    #[test]
    fn the_old_name_of_a_label_wins_and_a_missing_one_changes_nothing() {
        let beta = [
            ("failure-domain.beta.kubernetes.io/zone", "z-1"),
            ("failure-domain.beta.kubernetes.io/region", "r-1"),
            ("beta.kubernetes.io/instance-type", "m6"),
        ];
        let stable = labels(&[
            ("topology.kubernetes.io/zone", "z-1"),
            ("topology.kubernetes.io/region", "r-1"),
            ("node.kubernetes.io/instance-type", "m6"),
        ]);
        assert_eq!(drifted_pairs(&node(&beta)), stable);
        let mut both = node(&beta);
        for (key, value) in stable.clone() {
            both.metadata.labels.as_mut().unwrap().insert(key, value);
        }
        assert!(drifted_pairs(&both).is_empty());
        let edited = node(&[
            ("failure-domain.beta.kubernetes.io/zone", "z-1"),
            ("topology.kubernetes.io/zone", "z-9"),
            ("topology.kubernetes.io/region", "r-9"),
        ]);
        assert_eq!(
            drifted_pairs(&edited),
            labels(&[("topology.kubernetes.io/zone", "z-1")])
        );
        assert!(drifted_pairs(&Node::default()).is_empty());
    }

    /// REQ-NODE-28, CASE-NODE-07
    #[test]
    fn a_refresh_follows_the_cloud_and_removes_nothing() {
        let metadata = InstanceMetadata {
            instance_type: "m6.2xlarge".to_owned(),
            zone: "z-1".to_owned(),
            additional_labels: labels(&[
                ("example.com/rack", "r2"),
                ("node.kubernetes.io/evil", "x"),
            ]),
            ..InstanceMetadata::default()
        };
        let old = node(&[
            ("beta.kubernetes.io/instance-type", "m6.large"),
            ("node.kubernetes.io/instance-type", "m6.large"),
            ("failure-domain.beta.kubernetes.io/zone", "z-1"),
            ("topology.kubernetes.io/zone", "z-1"),
            ("topology.kubernetes.io/region", "r-1"),
            ("example.com/rack", "r1"),
            ("example.com/gone", "stays"),
            ("user", "own"),
        ]);
        assert_eq!(
            refreshed(&old, &metadata),
            labels(&[
                ("beta.kubernetes.io/instance-type", "m6.2xlarge"),
                ("example.com/rack", "r2"),
                ("node.kubernetes.io/instance-type", "m6.2xlarge"),
            ])
        );
    }
}
