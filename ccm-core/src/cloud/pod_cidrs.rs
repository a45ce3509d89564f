//! Pod address ranges that the cloud itself hands out (specification: controllers §6.4, §6.5).

use std::sync::Arc;

use async_trait::async_trait;

use super::CloudResult;
use crate::kube::Node;

/// What a wrong combination of the node IPAM flags does (specification: controllers §6.1, the
/// columns of the table). A provider without a column of its own behaves as the
/// kube-controller-manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeIpamPolicy {
    /// As the kube-controller-manager.
    #[default]
    Kubernetes,
    /// As the Google Cloud manager.
    Gcp,
    /// As the Azure manager.
    Azure,
}

/// The ranges of one Node, as its cloud knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudPodCidrs {
    /// The ranges for `spec.podCIDRs`, primary family first; at most one a family.
    pub cidrs: Vec<String>,
    /// Whether the cloud routes to them by itself: then the Node's condition
    /// `NetworkUnavailable` becomes `False`.
    pub routed: bool,
}

/// Node mask sizes of one Node, where the cloud names them (Azure, specification: controllers
/// §6.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMasks {
    /// The prefix length of the IPv4 block; `None`: as the flags say.
    pub ipv4: Option<u8>,
    /// The prefix length of the IPv6 block; `None`: as the flags say.
    pub ipv6: Option<u8>,
}

/// Where the ranges of the Nodes come from with `--cidr-allocator-type=CloudAllocator`.
#[derive(Clone)]
pub enum PodCidrs {
    /// The cloud gave each machine its ranges; they are copied to the Node.
    Copied(Arc<dyn MachinePodCidrs>),
    /// They are allocated here, with sizes that the cloud names per Node.
    Sized(Arc<dyn MachineMasks>),
}

/// Ranges that belong to machines.
#[async_trait]
pub trait MachinePodCidrs: Send + Sync {
    /// The ranges of each Node's machine, in the given order. A machine without usable ranges is
    /// an error of class `Invalid`; one that does not exist is `NotFound`.
    async fn pod_cidrs(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<CloudPodCidrs>>;
}

/// Block sizes that belong to machines.
#[async_trait]
pub trait MachineMasks: Send + Sync {
    /// The block sizes for each Node, in the given order.
    async fn masks(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<NodeMasks>>;
}
