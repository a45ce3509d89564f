//! What a cluster left behind in its cloud: it carries the cluster's tags and belongs to nothing
//! any more.

use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;
use serde::Serialize;

use super::CloudResult;
use crate::kube::{Node, Service};

/// What a leftover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LeftoverKind {
    /// A load balancer, with everything that was made for it.
    LoadBalancer,
    /// A target group that no load balancer uses.
    TargetGroup,
    /// A security group that was made for a load balancer.
    SecurityGroup,
    /// A rule in the security group of Nodes.
    Rule,
    /// A route to the pods of a Node.
    Route,
}

impl LeftoverKind {
    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "load balancer",
            Self::TargetGroup => "target group",
            Self::SecurityGroup => "security group",
            Self::Rule => "rule",
            Self::Route => "route",
        }
    }
}

/// Something without an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// The cloud's id: with the kind it names this thing and no other, ever.
    pub id: String,
    /// Its name; empty when it has none.
    pub name: String,
    /// The object that it was made for, as `namespace/name`, when the cloud still says so.
    pub made_for: Option<String>,
    /// When it was made, if the cloud tells. Nothing is derived from other things.
    pub created: Option<SystemTime>,
    /// Why it is taken for a leftover.
    pub reason: String,
    /// What goes with it.
    pub parts: Vec<String>,
    /// Why it is not to be removed, however old it is.
    pub kept: Option<String>,
}

/// Everything in the cluster that may own something in the cloud.
#[derive(Clone, Copy, Debug)]
pub struct Owners<'a> {
    /// The Services of type LoadBalancer, and those that carry the cleanup finalizer.
    pub services: &'a [Arc<Service>],
    /// All Nodes.
    pub nodes: &'a [Arc<Node>],
}

/// How a removal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Removed,
    /// It is no leftover any more, for this reason; nothing was done.
    Kept(String),
}

/// The leftovers of a cloud.
#[async_trait]
pub trait Leftovers: Send + Sync {
    /// All leftovers, in an order that does not change. What belongs to another cluster or is
    /// shared with one is never among them. A page that failed fails the whole list.
    async fn list(&self, owners: Owners<'_>) -> CloudResult<Vec<Leftover>>;

    /// Removes one leftover, if a fresh look at the cloud and at `owners`, which the caller has
    /// just read, shows that it still is one. An error that carries
    /// [`CloudError::retry_in`](super::CloudError::retry_in) asks for another call.
    async fn remove(&self, leftover: &Leftover, owners: Owners<'_>) -> CloudResult<Removal>;

    /// Whether these Nodes are machines of this very cluster in the cloud: a list of owners that
    /// was read from another cluster would make everything a leftover.
    async fn is_home_of(&self, nodes: &[Arc<Node>]) -> CloudResult<bool>;
}
