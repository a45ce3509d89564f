//! The EC2 calls about routes to the pods of Nodes (specification: aws §5, §8.1).

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;
use ipnet::IpNet;

use crate::{instances::InstanceId, tags::Tags};

/// A route table. Routes to prefix lists are not read: they are never ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// `rtb-…`.
    pub id: String,
    /// Its tags.
    pub tags: Tags,
    /// Its routes by destination, without host bits. A table has one route for a destination.
    pub routes: BTreeMap<IpNet, TableRoute>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRoute {
    /// Where it leads to.
    pub target: Target,
    /// Whether the target is gone or does not run: packets are dropped.
    pub blackhole: bool,
}

/// Where a route leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A machine, made by a call of CreateRoute or ReplaceRoute. What is gone has no ids any more.
    Machine {
        /// The instance.
        instance: Option<InstanceId>,
        /// The network interface.
        interface: Option<String>,
    },
    /// A gateway, a peering, the VPC itself, or whatever was put there by a gateway: its id.
    Other(String),
}

/// Where a route is to lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// An instance with one interface.
    Instance(InstanceId),
    /// An interface: EC2 takes no instance that has several.
    Interface(String),
}

/// Which route tables are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables<'a> {
    /// The one with this id.
    Id(&'a str),
    /// Those of the region that carry one of the tag keys.
    Tagged(&'a [String]),
}

/// The EC2 calls about routes. Errors carry AWS's code.
#[async_trait]
pub trait RoutesApi: Send + Sync {
    /// Route tables, all pages.
    async fn tables(&self, which: Tables<'_>) -> CloudResult<Vec<Table>>;
    /// Adds a route.
    async fn create_route(&self, table: &str, to: IpNet, hop: &NextHop) -> CloudResult<()>;
    /// Gives the route of this destination another target.
    async fn replace_route(&self, table: &str, to: IpNet, hop: &NextHop) -> CloudResult<()>;
    /// Removes the route of this destination.
    async fn delete_route(&self, table: &str, to: IpNet) -> CloudResult<()>;
    /// Lets a machine forward packets of other addresses than its own.
    async fn let_forward(&self, hop: &NextHop) -> CloudResult<()>;
}
