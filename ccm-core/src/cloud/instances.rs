//! The machines behind the Nodes.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::NodeAddress;

use super::{CloudResult, ProviderId};
use crate::kube::Node;

/// How an answer about existence must be obtained (specification: controllers §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A batch or list answer is good enough, if every page of it succeeded. Never a cached one.
    Shared,
    /// A read addressed to this very instance: the only thing that may complete a proof of absence.
    Direct,
}

/// Whether a machine exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The cloud said, completely and successfully, that this instance does not exist (or is in
    /// its terminal state).
    Absent,
    /// It exists, in this power state.
    Present(Power),
}

/// What a machine that exists is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Definitely running.
    Running,
    /// Definitely shut down: the Node gets the shutdown taint.
    Stopped,
    /// Starting, stopping, or a cloud that cannot tell: taints are left as they are.
    Unknown,
}

/// What the cloud knows of one machine (specification: controllers §1.3).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceMetadata {
    /// Written to `spec.providerID` when that is empty.
    pub provider_id: Option<ProviderId>,
    /// Written to the two instance-type labels. Empty writes none.
    pub instance_type: String,
    /// Written to `status.addresses`, in this order. Empty never clears existing addresses.
    pub addresses: Vec<NodeAddress>,
    /// Written to the two zone labels. Empty writes none.
    pub zone: String,
    /// Written to the two region labels. Empty writes none.
    pub region: String,
    /// Added at initialisation when the key is neither reserved nor already on the Node.
    pub additional_labels: BTreeMap<String, String>,
}

/// The machines of a cloud. Every method answers for each Node it is given, in the given order,
/// and one failed answer does not spoil the others.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Whether the machine behind each Node exists and what it is doing. Uncertainty (API error,
    /// throttling, missing permission, malformed provider id) is an error, never `Absent`. A Node
    /// without provider id is looked up by name.
    async fn presence(&self, nodes: &[Arc<Node>], read: Read) -> Vec<CloudResult<Presence>>;

    /// Provider id, type, addresses, zone and labels. `Ok(None)` means "leave this Node alone".
    /// A machine that is not found is an error of class `NotFound`.
    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>>;

    /// Whether this cloud has provider ids at all. Where it has none a Node is initialised
    /// without one.
    fn has_provider_ids(&self) -> bool {
        true
    }

    /// How many Nodes one cloud call answers for: callers ask in slices of this size.
    fn batch_size(&self) -> usize {
        100
    }
}
