//! What the controller would write to a Node, for those who only want to know. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeAddress, Taint};

use super::{
    addresses, initialise,
    labels::{self, Ignored},
};
use crate::{
    cloud::{CloudError, InstanceMetadata},
    kube::{Addresses, Node, NodePatch},
};

/// What one Node would get.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// Lines of difference in metadata and spec.
    pub(crate) object: Vec<String>,
    /// Lines of difference in the status.
    pub(crate) status: Vec<String>,
    /// The Node as it would be then; `None` where that is as it is.
    pub(crate) after: Option<Node>,
    /// What is left out, and why.
    pub(crate) notes: Vec<String>,
    /// Why not more is done.
    pub(crate) problem: Option<CloudError>,
}

/// Whether labels of initialised Nodes follow the cloud, and whether the cloud has provider ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) label_refresh: bool,
    pub(crate) has_provider_ids: bool,
}

/// What the controller does about this Node, given the cloud's answer about its machine.
pub(crate) fn planned(
    node: &Node,
    answer: Result<Option<InstanceMetadata>, CloudError>,
    options: Options,
) -> Planned {
    let mut planned = Planned::default();
    let waits = initialise::is_uninitialised(node);
    if !waits {
        set_labels(node, labels::drifted_pairs(node), &mut planned.object);
    }
    let metadata = match answer {
        Ok(Some(metadata)) => metadata,
        Ok(None) => return planned,
        Err(error) if error.is_not_found() && !waits => {
            planned
                .notes
                .push(format!("its machine is not found in the cloud: {error}"));
            return planned;
        }
        Err(error) => {
            planned.problem = Some(error.context("failed to get instance metadata"));
            return planned;
        }
    };
    if waits {
        match initialise::plan(node, &metadata, options.has_provider_ids) {
            Ok(Some(plan)) => {
                patch_lines(node, &plan.patch, &mut planned.object);
                planned.after = Some(patched(node, &plan.patch));
                planned.notes.extend(plan.ignored.iter().map(ignored));
            }
            Ok(None) => {}
            Err(refusal) => {
                planned.problem = Some(CloudError::invalid(refusal.to_string()));
                return planned;
            }
        }
    } else if options.label_refresh {
        let mut labels = labels::refreshed(node, &metadata);
        for key in labels::drifted_pairs(node).keys() {
            labels.remove(key);
        }
        set_labels(node, labels, &mut planned.object);
    }
    match addresses::wanted(node, &metadata.addresses) {
        Ok(Some(wanted)) if node.status.addresses != *wanted.as_slice() => {
            planned.status.push(format!(
                "status.addresses: {} -> {}",
                current(&node.status.addresses),
                listed(&wanted)
            ));
            let after = planned.after.get_or_insert_with(|| node.clone());
            after.status.addresses = wanted.into();
        }
        Ok(_) => {}
        Err(error) => planned.problem = Some(CloudError::invalid(error.to_string())),
    }
    planned
}

fn patch_lines(node: &Node, patch: &NodePatch, lines: &mut Vec<String>) {
    if let Some(id) = &patch.provider_id {
        lines.push(format!("spec.providerID: none -> {id}"));
    }
    if let Some(taints) = &patch.taints {
        lines.extend(taint_lines(&node.spec.taints, taints));
    }
    set_labels(node, patch.labels.clone(), lines);
}

/// The Node after its initialisation: load balancers and routes are for it as it is then.
fn patched(node: &Node, patch: &NodePatch) -> Node {
    let mut after = node.clone();
    if patch.provider_id.is_some() {
        after.spec.provider_id.clone_from(&patch.provider_id);
    }
    if let Some(taints) = &patch.taints {
        after.spec.taints.clone_from(taints);
    }
    let labels = after.metadata.labels.get_or_insert_default();
    for (key, value) in &patch.labels {
        labels.insert(key.as_str(), value.as_str());
    }
    after
}

/// The difference of two taint lists.
pub(crate) fn taint_lines(before: &[Taint], after: &[Taint]) -> Vec<String> {
    let gone = before.iter().filter(|taint| !after.contains(taint));
    let new = after.iter().filter(|taint| !before.contains(taint));
    gone.map(|taint| format!("spec.taints: remove {}:{}", taint.key, taint.effect))
        .chain(new.map(|taint| format!("spec.taints: add {}:{}", taint.key, taint.effect)))
        .collect()
}

fn set_labels(node: &Node, set: BTreeMap<String, String>, lines: &mut Vec<String>) {
    lines.extend(set.into_iter().map(|(key, value)| {
        let before = node.label(&key).unwrap_or("none");
        format!("label {key}: {before} -> {value}")
    }));
}

fn ignored(label: &Ignored) -> String {
    match label {
        Ignored::Reserved(key) => {
            format!("label {key} of the cloud is left out: its key belongs to Kubernetes")
        }
        Ignored::Taken(key) => {
            format!("label {key} of the cloud is left out: the Node has another value")
        }
    }
}

fn listed(addresses: &[NodeAddress]) -> String {
    text(
        addresses
            .iter()
            .map(|a| (a.type_.as_str(), a.address.as_str())),
    )
}

fn current(addresses: &Addresses) -> String {
    text(addresses.iter())
}

fn text<'a>(addresses: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let all: Vec<String> = addresses
        .map(|(type_, address)| format!("{type_} {address}"))
        .collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cloud::{Class, ProviderId},
        controllers::node::UNINITIALIZED_TAINT,
    };

    const OPTIONS: Options = Options {
        label_refresh: false,
        has_provider_ids: true,
    };

    fn node() -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("heron-1".to_owned());
        node
    }

    fn tainted() -> Node {
        let mut node = node();
        node.spec.taints = vec![Taint {
            key: UNINITIALIZED_TAINT.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }];
        node
    }

    fn metadata() -> InstanceMetadata {
        InstanceMetadata {
            provider_id: Some(ProviderId::new("sim:///z-1/i-1").unwrap()),
            zone: "z-1".to_owned(),
            addresses: vec![NodeAddress {
                type_: "InternalIP".to_owned(),
                address: "10.0.0.1".to_owned(),
            }],
            ..InstanceMetadata::default()
        }
    }

    #[test]
    fn a_new_node_would_get_everything_that_its_initialisation_writes() {
        let planned = planned(&tainted(), Ok(Some(metadata())), OPTIONS);
        assert_eq!(
            planned.object,
            [
                "spec.providerID: none -> sim:///z-1/i-1",
                "spec.taints: remove node.cloudprovider.kubernetes.io/uninitialized:NoSchedule",
                "label failure-domain.beta.kubernetes.io/zone: none -> z-1",
                "label topology.kubernetes.io/zone: none -> z-1",
            ]
        );
        assert_eq!(
            planned.status,
            ["status.addresses: none -> InternalIP 10.0.0.1"]
        );
        assert!(planned.problem.is_none());
        let after = planned.after.unwrap();
        assert_eq!(after.provider_id(), Some("sim:///z-1/i-1"));
        assert_eq!(after.label("topology.kubernetes.io/zone"), Some("z-1"));
        assert!(after.spec.taints.is_empty());
        assert_eq!(after.status.addresses, *metadata().addresses.as_slice());
    }

    #[test]
    fn an_initialised_node_would_get_only_what_differs() {
        let mut node = node();
        node.status.addresses = metadata().addresses.into();
        let same = planned(&node, Ok(Some(metadata())), OPTIONS);
        assert!(same.object.is_empty() && same.status.is_empty() && same.problem.is_none());
        assert_eq!(same.after, None);
        let refreshing = Options {
            label_refresh: true,
            ..OPTIONS
        };
        assert_eq!(
            planned(&node, Ok(Some(metadata())), refreshing)
                .object
                .len(),
            2
        );
        node.metadata.labels = Some(
            [(
                "failure-domain.beta.kubernetes.io/zone".to_owned(),
                "z-1".to_owned(),
            )]
            .into(),
        );
        for options in [OPTIONS, refreshing] {
            assert_eq!(
                planned(&node, Ok(Some(metadata())), options).object,
                ["label topology.kubernetes.io/zone: none -> z-1"]
            );
        }
    }

    #[test]
    fn a_missing_machine_holds_up_only_a_node_that_waits_for_it() {
        let missing = || Err(CloudError::new(Class::NotFound, "gone"));
        let waiting = planned(&tainted(), missing(), OPTIONS);
        assert!(waiting.problem.is_some_and(|error| error.is_not_found()));
        let other = planned(&node(), missing(), OPTIONS);
        assert!(other.problem.is_none());
        assert_eq!(other.notes.len(), 1);
    }
}
