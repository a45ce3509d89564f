//! What an uninitialised Node gets, and whether it may lose the cloud taint now
//! (specification: controllers §2.3). Pure.

use k8s_openapi::api::core::v1::Taint;

use super::{
    addresses::{self, NodeIpError},
    labels::{self, Ignored},
};
use crate::{
    cloud::InstanceMetadata,
    kube::{Node, NodePatch},
};

/// The taint that a kubelet with an external cloud provider registers with: nothing is scheduled
/// before this controller has removed it.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Whether the Node waits for its initialisation. By key only: value and effect are ignored.
pub(crate) fn is_uninitialised(node: &Node) -> bool {
    node.spec.taints.iter().any(is_cloud_taint)
}

fn is_cloud_taint(taint: &Taint) -> bool {
    taint.key == UNINITIALIZED_TAINT
}

/// Why the taint stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// Neither the cloud nor the Node has a provider id, in a cloud that has them.
    #[error("the cloud reports no provider id and spec.providerID is empty")]
    NoProviderId,
    /// The kubelet asks for a node IP that cannot be honoured.
    #[error(transparent)]
    NodeIp(#[from] NodeIpError),
    /// The cloud does not know an address yet, and the Node has none of its own (or asks for one
    /// that must be confirmed).
    #[error("the cloud reports no address yet")]
    NoAddressYet,
}

/// The one write that initialises a Node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Initialisation {
    pub(super) patch: NodePatch,
    pub(super) ignored: Vec<Ignored>,
}

/// The write for this version of the Node. `None` when it has no cloud taint (any more). The same
/// Node and metadata always give the same write, so it may be computed anew after a conflict.
pub(super) fn plan(
    node: &Node,
    metadata: &InstanceMetadata,
    cloud_has_provider_ids: bool,
) -> Result<Option<Initialisation>, Refusal> {
    if !is_uninitialised(node) {
        return Ok(None);
    }
    let provider_id = match (node.provider_id(), &metadata.provider_id) {
        (Some(_), _) => None,
        (None, Some(id)) => Some(id.as_str().to_owned()),
        (None, None) if cloud_has_provider_ids => return Err(Refusal::NoProviderId),
        (None, None) => None,
    };
    let requested = addresses::requested(node)?;
    if metadata.addresses.is_empty() {
        // Only a Node that shows an address of its own may do without the cloud's.
        if requested.is_some() || !addresses::has_internal_ip(node) {
            return Err(Refusal::NoAddressYet);
        }
    } else {
        addresses::wanted(node, &metadata.addresses)?;
    }
    let changes = labels::initial(node, metadata);
    let others = node
        .spec
        .taints
        .iter()
        .filter(|taint| !is_cloud_taint(taint))
        .cloned()
        .collect();
    Ok(Some(Initialisation {
        patch: NodePatch {
            labels: changes.set,
            provider_id,
            ..NodePatch::taints(node, others)
        },
        ignored: changes.ignored,
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::NodeAddress;

    use super::*;
    use crate::cloud::ProviderId;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()).filter(|v| !v.is_empty()),
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    fn address(type_: &str, address: &str) -> NodeAddress {
        NodeAddress {
            type_: type_.to_owned(),
            address: address.to_owned(),
        }
    }

    fn node() -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("heron-1".to_owned());
        node.metadata.resource_version = Some("7".to_owned());
        node.spec.taints = vec![taint(UNINITIALIZED_TAINT, "true", "NoSchedule")];
        node
    }

    fn metadata() -> InstanceMetadata {
        InstanceMetadata {
            provider_id: Some(ProviderId::new("sim:///z-1/i-1").unwrap()),
            addresses: vec![address("InternalIP", "10.0.0.1")],
            ..InstanceMetadata::default()
        }
    }

    fn patch(node: &Node, metadata: &InstanceMetadata) -> NodePatch {
        plan(node, metadata, true).unwrap().unwrap().patch
    }

    /// REQ-NODE-01
    #[test]
    fn a_node_without_the_taint_gets_nothing() {
        let mut node = node();
        node.spec.taints = vec![taint("other", "", "NoSchedule")];
        assert_eq!(plan(&node, &metadata(), true).unwrap(), None);
    }

    /// REQ-NODE-02
    #[test]
    fn every_taint_of_that_key_goes_and_the_others_keep_their_order() {
        let mut node = node();
        let (first, last) = (
            taint("csi.example/wait", "", "NoSchedule"),
            taint("team", "blue", "NoExecute"),
        );
        node.spec.taints = vec![
            first.clone(),
            taint(UNINITIALIZED_TAINT, "anything", "NoExecute"),
            last.clone(),
            taint(UNINITIALIZED_TAINT, "", "PreferNoSchedule"),
        ];
        let patch = patch(&node, &metadata());
        assert_eq!(patch.taints, Some(vec![first, last]));
        assert_eq!(patch.resource_version.as_deref(), Some("7"));
    }

    /// REQ-NODE-03, REQ-NODE-04, REQ-NODE-05 (TM1 to TM6, TN11 to TN13)
    #[test]
    fn the_provider_id_is_written_only_where_there_is_none() {
        let cases = [
            // (the Node's, the cloud's, the cloud has ids, expected)
            (None, Some("sim://1"), true, Ok(Some("sim://1"))),
            (Some("sim://old"), Some("sim://1"), true, Ok(None)),
            (Some(""), Some("sim://1"), true, Ok(Some("sim://1"))),
            (Some("sim://old"), None, true, Ok(None)),
            (None, None, true, Err(Refusal::NoProviderId)),
            (None, None, false, Ok(None)),
            (Some("sim://old"), None, false, Ok(None)),
        ];
        for (own, cloud, has_ids, expected) in cases {
            let mut node = node();
            node.spec.provider_id = own.map(str::to_owned);
            let metadata = InstanceMetadata {
                provider_id: cloud.map(|id| ProviderId::new(id).unwrap()),
                ..metadata()
            };
            let got = plan(&node, &metadata, has_ids).map(|plan| plan.unwrap().patch.provider_id);
            assert_eq!(got, expected.map(|id| id.map(str::to_owned)));
        }
    }

    /// REQ-NODE-09 (TN8 to TN10)
    #[test]
    fn a_node_ip_that_cannot_be_honoured_keeps_the_taint() {
        let asking = |ip: &str| {
            let mut node = node();
            node.metadata.annotations =
                Some([(addresses::PROVIDED_NODE_IP.to_owned(), ip.to_owned())].into());
            plan(&node, &metadata(), true)
        };
        assert!(asking("10.0.0.1").unwrap().is_some());
        assert!(matches!(
            asking("not-an-ip").unwrap_err(),
            Refusal::NodeIp(NodeIpError::NotAnAddress { .. })
        ));
        assert!(matches!(
            asking("10.0.0.2").unwrap_err(),
            Refusal::NodeIp(NodeIpError::NotReported { .. })
        ));
    }

    /// CASE-NODE-02
    #[test]
    fn without_any_address_the_taint_stays() {
        let nothing = InstanceMetadata {
            addresses: Vec::new(),
            ..metadata()
        };
        assert_eq!(
            plan(&node(), &nothing, true).unwrap_err(),
            Refusal::NoAddressYet
        );
        // Not a new Node: it shows an address already (TN12 with an address of its own).
        let mut own = node();
        own.status.addresses = vec![address("InternalIP", "10.0.0.9")].into();
        assert!(plan(&own, &nothing, true).unwrap().is_some());
        // What the kubelet asks for must be confirmed by the cloud.
        own.metadata.annotations = Some(
            [(
                addresses::PROVIDED_NODE_IP.to_owned(),
                "10.0.0.9".to_owned(),
            )]
            .into(),
        );
        assert_eq!(
            plan(&own, &nothing, true).unwrap_err(),
            Refusal::NoAddressYet
        );
    }

    /// REQ-NODE-07, REQ-NODE-15, REQ-NODE-26 (TN5, TN15)
    #[test]
    fn one_write_carries_id_labels_and_taints_and_nothing_else() {
        let metadata = InstanceMetadata {
            zone: "z-1".to_owned(),
            region: "r-1".to_owned(),
            additional_labels: BTreeMap::from([("example.com/rack".to_owned(), "9".to_owned())]),
            ..metadata()
        };
        assert_eq!(
            patch(&node(), &metadata).body(),
            serde_json::json!({
                "metadata": {
                    "resourceVersion": "7",
                    "labels": {
                        "example.com/rack": "9",
                        "failure-domain.beta.kubernetes.io/region": "r-1",
                        "failure-domain.beta.kubernetes.io/zone": "z-1",
                        "topology.kubernetes.io/region": "r-1",
                        "topology.kubernetes.io/zone": "z-1",
                    },
                },
                "spec": { "providerID": "sim:///z-1/i-1", "taints": null },
            })
        );
    }

    /// REQ-NODE-14
    #[test]
    fn the_plan_for_a_changed_node_is_the_same_change() {
        let mut changed = node();
        changed.metadata.resource_version = Some("8".to_owned());
        let late = taint("late", "", "NoSchedule");
        changed.spec.taints.push(late.clone());
        let (before, after) = (patch(&node(), &metadata()), patch(&changed, &metadata()));
        assert_eq!(after.taints, Some(vec![late]));
        assert_eq!(after.resource_version.as_deref(), Some("8"));
        assert_eq!(
            (before.labels, before.provider_id),
            (after.labels, after.provider_id)
        );
    }
}
