//! Writes to Nodes: always patches, never whole objects (REQ-NODE-29).
//!
//! A taint list is atomic for the API server, so every patch that carries one also carries the
//! resource version it was computed from: a taint that someone else adds or removes meanwhile
//! makes the patch conflict instead of being lost (REQ-NODE-30).

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition, Taint};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

use super::{Node, cached::Wire};

/// The field that the API server names when a write is meant for another object of the same name.
const UID_FIELD: &str = "metadata.uid";

/// Changes of one Node's metadata and spec. What is not named here is not sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePatch {
    /// The version that the change was computed from: the write conflicts if it is not the
    /// current one. Required together with `taints`.
    pub resource_version: Option<String>,
    /// The Node that the change is meant for: the write is refused if another one has its name by
    /// now.
    pub uid: Option<String>,
    /// Labels to set; all others stay.
    pub labels: BTreeMap<String, String>,
    /// `spec.providerID` to set.
    pub provider_id: Option<String>,
    /// The whole new taint list.
    pub taints: Option<Vec<Taint>>,
}

impl NodePatch {
    /// A patch that sets labels of exactly this Node and nothing else.
    pub fn labels(node: &Node, labels: BTreeMap<String, String>) -> Self {
        Self {
            uid: node.metadata.uid.clone(),
            labels,
            ..Self::default()
        }
    }

    /// A patch that replaces the taints of exactly this version of the Node.
    pub fn taints(node: &Node, taints: Vec<Taint>) -> Self {
        Self {
            resource_version: node.metadata.resource_version.clone(),
            taints: Some(taints),
            ..Self::default()
        }
    }

    /// The body of a JSON merge patch.
    pub fn body(&self) -> Value {
        let mut metadata = serde_json::Map::new();
        let mut spec = serde_json::Map::new();
        if let Some(version) = &self.resource_version {
            metadata.insert("resourceVersion".to_owned(), json!(version));
        }
        if let Some(uid) = &self.uid {
            metadata.insert("uid".to_owned(), json!(uid));
        }
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.labels));
        }
        if let Some(id) = &self.provider_id {
            spec.insert("providerID".to_owned(), json!(id));
        }
        if let Some(taints) = &self.taints {
            // An empty list is stored as an absent one.
            let list = if taints.is_empty() {
                Value::Null
            } else {
                json!(taints)
            };
            spec.insert("taints".to_owned(), list);
        }
        let mut body = serde_json::Map::new();
        for (key, part) in [("metadata", metadata), ("spec", spec)] {
            if !part.is_empty() {
                body.insert(key.to_owned(), Value::Object(part));
            }
        }
        Value::Object(body)
    }
}

/// A failed write or read of a Node. `Display` is the API server's own message.
#[derive(Debug)]
pub struct NodeWriteError(kube::Error);

impl NodeWriteError {
    /// Whether the Node is not the one the write was meant for: another version or another UID.
    pub fn is_conflict(&self) -> bool {
        matches!(&self.0, kube::Error::Api(status) if status.is_conflict())
    }

    /// Whether another Node has the name by now: a write that named a UID was refused for it.
    pub fn is_other_node(&self) -> bool {
        let kube::Error::Api(status) = &self.0 else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        status.code == 422
            && (causes
                .map(|cause| cause.field.as_str())
                .any(|f| f == UID_FIELD)
                || status.message.contains(UID_FIELD))
    }

    /// Whether the write may have been applied although it failed: the answer was lost, or it does
    /// not say that nothing was done.
    pub fn is_outcome_unknown(&self) -> bool {
        match &self.0 {
            kube::Error::Api(status) => !(400..500).contains(&status.code) || status.code == 408,
            _ => true,
        }
    }

    /// Whether the API server refused the content of the write.
    pub fn is_invalid(&self) -> bool {
        matches!(&self.0, kube::Error::Api(status) if status.code == 422)
    }

    /// Whether there is no Node of that name.
    pub fn is_gone(&self) -> bool {
        matches!(&self.0, kube::Error::Api(status) if status.is_not_found())
    }
}

impl fmt::Display for NodeWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            kube::Error::Api(status) if !status.message.is_empty() => f.write_str(&status.message),
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for NodeWriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<kube::Error> for NodeWriteError {
    fn from(error: kube::Error) -> Self {
        Self(error)
    }
}

/// The Node endpoints of the API server that the node controllers use. Cheap to clone.
#[derive(Clone)]
pub struct NodeWrites {
    api: Api<Wire<Node>>,
}

impl NodeWrites {
    /// Writes through this client.
    pub fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
        }
    }

    /// The Node as the API server has it now, not as a cache remembers it. `None` when it is gone.
    ///
    /// # Errors
    /// The API server's answer, or none.
    pub async fn read(&self, name: &str) -> Result<Option<Node>, NodeWriteError> {
        let node = self.api.get_opt(name).await?;
        Ok(node.map(|wire| wire.object))
    }

    /// Changes metadata and spec; answers with the Node as it is then.
    ///
    /// # Errors
    /// Conflict when the patch names a version that is not the current one.
    pub async fn patch(&self, name: &str, patch: &NodePatch) -> Result<Node, NodeWriteError> {
        let body = Patch::Merge(patch.body());
        let node = self.api.patch(name, &PatchParams::default(), &body).await?;
        Ok(node.object)
    }

    /// Replaces `status.addresses` of exactly this Node as a whole. A merge patch, because the API type is wrongly
    /// marked as merged by address type (REQ-NODE-16).
    ///
    /// # Errors
    /// The API server's answer, or none.
    pub async fn set_addresses(
        &self,
        node: &Node,
        addresses: &[NodeAddress],
    ) -> Result<(), NodeWriteError> {
        let mut body = json!({ "status": { "addresses": addresses } });
        if let (Some(uid), Some(body)) = (&node.metadata.uid, body.as_object_mut()) {
            body.insert("metadata".to_owned(), json!({ "uid": uid }));
        }
        let body = Patch::Merge(body);
        self.api
            .patch_status(node.name(), &PatchParams::default(), &body)
            .await?;
        Ok(())
    }

    /// Sets one condition of exactly this Node and no other: a strategic merge by type. Answers
    /// with the Node's version after it.
    ///
    /// # Errors
    /// The API server's answer, or none.
    pub async fn set_condition(
        &self,
        node: &Node,
        condition: &NodeCondition,
    ) -> Result<Option<String>, NodeWriteError> {
        let body = Patch::Strategic(condition_body(node, condition));
        let updated = self
            .api
            .patch_status(node.name(), &PatchParams::default(), &body)
            .await?;
        Ok(updated.object.metadata.resource_version)
    }

    /// Deletes exactly this Node, not a new one of the same name (REQ-LIFE-14).
    ///
    /// # Errors
    /// Gone, or conflict when the name belongs to another Node by now.
    pub async fn delete(&self, node: &Node) -> Result<(), NodeWriteError> {
        let this_one = Preconditions {
            uid: node.metadata.uid.clone(),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(this_one);
        self.api.delete(node.name(), &params).await?;
        Ok(())
    }

    /// Gives pod ranges to exactly this Node, the primary family first; answers with the Node as it
    /// is then. A merge patch, because a strategic one adds to a list that somebody else set
    /// meanwhile instead of being refused. Without a resource version: the API server lets nobody
    /// change ranges once they are set, and a heartbeat must not make the write conflict.
    ///
    /// # Errors
    /// [`is_invalid`](NodeWriteError::is_invalid) when the Node has other ranges already.
    pub async fn set_pod_cidrs(
        &self,
        node: &Node,
        cidrs: &[String],
    ) -> Result<Node, NodeWriteError> {
        let body = Patch::Merge(pod_cidrs_body(node, cidrs));
        let params = PatchParams::default();
        let now = self.api.patch(node.name(), &params, &body).await?;
        Ok(now.object)
    }
}

fn pod_cidrs_body(node: &Node, cidrs: &[String]) -> Value {
    json!({
        "metadata": { "uid": node.metadata.uid },
        "spec": { "podCIDR": cidrs.first(), "podCIDRs": cidrs },
    })
}

fn condition_body(node: &Node, condition: &NodeCondition) -> Value {
    json!({
        "metadata": { "uid": node.metadata.uid },
        "status": { "conditions": [condition] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REQ-NODE-29, REQ-NODE-30
    #[test]
    fn a_patch_names_only_what_it_changes() {
        assert_eq!(NodePatch::default().body(), json!({}));
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let mut node = Node::default();
        node.metadata.uid = Some("u1".to_owned());
        assert_eq!(
            NodePatch::labels(&node, labels).body(),
            json!({"metadata": {"uid": "u1", "labels": {"a": "b"}}})
        );
        node.metadata.resource_version = Some("7".to_owned());
        assert_eq!(
            NodePatch::taints(&node, Vec::new()).body(),
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": null}})
        );
        let taint = Taint {
            key: "k".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        assert_eq!(
            NodePatch {
                provider_id: Some("x://1".to_owned()),
                ..NodePatch::taints(&node, vec![taint])
            }
            .body(),
            json!({
                "metadata": {"resourceVersion": "7"},
                "spec": {"providerID": "x://1", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            })
        );
    }
    /// REQ-NODE-29, REQ-IPAM-01
    #[test]
    fn pod_ranges_and_conditions_are_written_to_exactly_this_node() {
        let mut node = Node::default();
        node.metadata.uid = Some("u1".to_owned());
        let cidrs = ["10.0.1.0/24".to_owned(), "2001:db8:0:1::/64".to_owned()];
        assert_eq!(
            pod_cidrs_body(&node, &cidrs),
            json!({
                "metadata": {"uid": "u1"},
                "spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24", "2001:db8:0:1::/64"]},
            })
        );
        let condition = NodeCondition {
            type_: "NetworkUnavailable".to_owned(),
            status: "False".to_owned(),
            reason: Some("RouteCreated".to_owned()),
            message: Some("NodeController create implicit route".to_owned()),
            ..NodeCondition::default()
        };
        assert_eq!(
            condition_body(&node, &condition),
            json!({
                "metadata": {"uid": "u1"},
                "status": {"conditions": [{
                    "type": "NetworkUnavailable",
                    "status": "False",
                    "reason": "RouteCreated",
                    "message": "NodeController create implicit route",
                }]},
            })
        );
    }
}
