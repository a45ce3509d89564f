//! The routes to the pods of every Node (specification: controllers §1.6).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::NodeAddress;

use super::CloudResult;
use crate::kube::Node;

/// A route as the cloud shows it, or as it is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// The cloud's name of the route; empty for one that is wanted. Only for logs and for the
    /// provider itself.
    pub name: String,
    /// The Node it leads to; empty when the cloud's target is none of the Nodes' machines.
    pub target_node: String,
    /// Whether the provider fills `target_node_addresses`: only then does a change of a Node's
    /// addresses replace its route.
    pub has_node_addresses: bool,
    /// The Node's addresses that the route was made for.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The range of pod addresses, as the cloud spells it.
    pub destination_cidr: String,
    /// Whether the target is gone and packets are dropped.
    pub blackhole: bool,
}

/// A route to make.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedRoute {
    /// The Node's UID: a provider that needs a name derives it from here. Both routes of a
    /// dual-stack Node carry the same hint.
    pub name_hint: String,
    /// Where it leads and from which range.
    pub route: Route,
    /// `spec.providerID` of the target Node, when it has one.
    pub provider_id: Option<String>,
}

/// The routes of a cloud. Signatures take many, so that a provider with one table write for all
/// can use it; answers stand in the order of what was given, and one failure does not spoil the
/// others.
///
/// Calls overlap, also a create with a delete, though never of the same destination: a provider
/// whose table takes one write at a time queues them itself. A call that was begun is waited for,
/// even when the process is ending; only [`list`](Self::list) may be dropped.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Every managed route of this cluster. A route whose target cannot be told is `blackhole` or
    /// has an empty `target_node`; a page that failed fails the whole list. `nodes` are all Nodes as
    /// they are now: a cloud whose table names machines finds their Nodes among them.
    async fn list(&self, nodes: &[Arc<Node>]) -> CloudResult<Vec<Route>>;

    /// Makes routes. A route that is there already, with the same destination and target, is
    /// success; one of the same name with another target is replaced.
    async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>>;

    /// Removes routes, exactly as they were listed. A route that is gone already is success.
    async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>>;

    /// How many routes one call of [`create`](Self::create) or [`delete`](Self::delete) takes.
    fn batch_size(&self) -> usize {
        1
    }
}
