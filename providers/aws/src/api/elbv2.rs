//! The calls of the Elastic Load Balancing API, version 2, that network load balancers need
//! (specification: aws §8.3). Every list is read to its last page.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;

use crate::tags::Tags;

/// Attributes of a load balancer or target group, by key.
pub type Attributes = BTreeMap<String, String>;

/// The most targets one register or deregister call takes.
pub const TARGETS_PER_CALL: usize = 100;

/// The most resources one DescribeTags or DescribeLoadBalancers call takes.
pub const RESOURCES_PER_CALL: usize = 20;

/// The scheme of a load balancer that only the VPC reaches.
pub const SCHEME_INTERNAL: &str = "internal";

/// A load balancer of any type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// `network`, `application`, `gateway`.
    pub kind: String,
    /// Its DNS name.
    pub dns_name: String,
    /// `internal` or `internet-facing`.
    pub scheme: String,
    /// `provisioning`, `active`, `active_impaired`, `failed`.
    pub state: String,
    /// Its VPC.
    pub vpc_id: String,
    /// Its subnets, one a zone.
    pub subnets: BTreeSet<String>,
    /// Its security groups; empty when it was made without any.
    pub security_groups: BTreeSet<String>,
}

/// One subnet of a load balancer to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubnetMapping {
    /// The subnet.
    pub subnet_id: String,
    /// The Elastic IP's allocation id.
    pub allocation_id: Option<String>,
    /// The private address.
    pub private_ipv4: Option<String>,
}

/// A network load balancer to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewLoadBalancer {
    /// Its name.
    pub name: String,
    /// Whether its scheme is `internal`; the scheme is not sent otherwise.
    pub internal: bool,
    /// Its subnets.
    pub subnets: Vec<SubnetMapping>,
    /// Its security groups.
    pub security_groups: BTreeSet<String>,
    /// Its tags.
    pub tags: Tags,
}

/// How targets are checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// A port number or `traffic-port`.
    pub port: String,
    /// The path of an HTTP check.
    pub path: Option<String>,
    /// Seconds between checks.
    pub interval: i32,
    /// Seconds to wait for an answer; `None` leaves it to AWS.
    pub timeout: Option<i32>,
    /// Successes until healthy.
    pub healthy: i32,
    /// Failures until unhealthy.
    pub unhealthy: i32,
}

/// The fields of a health check to be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthChange {
    /// See [`HealthCheck::protocol`].
    pub protocol: Option<String>,
    /// See [`HealthCheck::port`].
    pub port: Option<String>,
    /// See [`HealthCheck::path`].
    pub path: Option<String>,
    /// See [`HealthCheck::interval`].
    pub interval: Option<i32>,
    /// See [`HealthCheck::timeout`].
    pub timeout: Option<i32>,
    /// Successes and failures until the state changes; AWS gets both or none.
    pub thresholds: Option<(i32, i32)>,
}

/// A target group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetGroup {
    /// Its ARN.
    pub arn: String,
    /// Its name.
    pub name: String,
    /// The port on the targets.
    pub port: i32,
    /// `TCP`, `UDP`, `TLS`, …
    pub protocol: String,
    /// Its VPC.
    pub vpc_id: String,
    /// How targets are checked.
    pub health: HealthCheck,
    /// ARNs of the load balancers that forward to it.
    pub load_balancers: BTreeSet<String>,
}

/// A target group of instances to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTargetGroup {
    /// Its name.
    pub name: String,
    /// The port on the targets.
    pub port: i32,
    /// `TCP`, `UDP` or `TLS`.
    pub protocol: String,
    /// Its VPC.
    pub vpc_id: String,
    /// How targets are checked.
    pub health: HealthCheck,
    /// Its tags.
    pub tags: Tags,
}

/// An instance in a target group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The instance.
    pub id: String,
    /// The port on it.
    pub port: i32,
}

/// What a listener does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerSpec {
    /// The port it listens on.
    pub port: i32,
    /// `TCP`, `UDP` or `TLS`.
    pub protocol: String,
    /// The security policy of a TLS listener; `None` leaves it to AWS.
    pub ssl_policy: Option<String>,
    /// The certificate of a TLS listener.
    pub certificate: Option<String>,
    /// The target group it forwards to.
    pub target_group: String,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// Its ARN.
    pub arn: String,
    /// What it does; the target group is empty when its actions do not forward to one.
    pub spec: ListenerSpec,
    /// Further target groups that a weighted forward leads to: someone else's doing.
    pub also_forwards_to: BTreeSet<String>,
}

/// The Elastic Load Balancing API, version 2. Errors carry AWS's code.
#[async_trait]
pub trait Elbv2Api: Send + Sync {
    /// The load balancer of that name, of any type.
    async fn load_balancer(&self, name: &str) -> CloudResult<Option<LoadBalancer>>;
    /// Makes a network load balancer.
    async fn create_load_balancer(&self, new: &NewLoadBalancer) -> CloudResult<LoadBalancer>;
    /// Deletes a load balancer with its listeners.
    async fn delete_load_balancer(&self, arn: &str) -> CloudResult<()>;
    /// Replaces the security groups.
    async fn set_security_groups(&self, arn: &str, groups: &BTreeSet<String>) -> CloudResult<()>;
    /// All attributes of a load balancer.
    async fn load_balancer_attributes(&self, arn: &str) -> CloudResult<Attributes>;
    /// Changes the given attributes of a load balancer.
    async fn modify_load_balancer_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> CloudResult<()>;

    /// The listeners of a load balancer.
    async fn listeners(&self, load_balancer: &str) -> CloudResult<Vec<Listener>>;
    /// Makes a listener.
    async fn create_listener(
        &self,
        load_balancer: &str,
        spec: &ListenerSpec,
        tags: &Tags,
    ) -> CloudResult<Listener>;
    /// Changes a listener in place.
    async fn modify_listener(&self, arn: &str, spec: &ListenerSpec) -> CloudResult<Listener>;
    /// Deletes a listener.
    async fn delete_listener(&self, arn: &str) -> CloudResult<()>;

    /// The target groups that a load balancer forwards to.
    async fn target_groups_of(&self, load_balancer: &str) -> CloudResult<Vec<TargetGroup>>;
    /// The target group of that name.
    async fn target_group_named(&self, name: &str) -> CloudResult<Option<TargetGroup>>;
    /// All target groups of the account and region.
    async fn all_target_groups(&self) -> CloudResult<Vec<TargetGroup>>;
    /// Makes a target group.
    async fn create_target_group(&self, new: &NewTargetGroup) -> CloudResult<TargetGroup>;
    /// Changes the health check.
    async fn modify_target_group(&self, arn: &str, change: &HealthChange) -> CloudResult<()>;
    /// Deletes a target group.
    async fn delete_target_group(&self, arn: &str) -> CloudResult<()>;
    /// The registered targets, without those that are being deregistered.
    async fn targets(&self, target_group: &str) -> CloudResult<BTreeSet<Target>>;
    /// Registers at most [`TARGETS_PER_CALL`] targets.
    async fn register(&self, target_group: &str, targets: &[Target]) -> CloudResult<()>;
    /// Deregisters at most [`TARGETS_PER_CALL`] targets.
    async fn deregister(&self, target_group: &str, targets: &[Target]) -> CloudResult<()>;
    /// All attributes of a target group.
    async fn target_group_attributes(&self, arn: &str) -> CloudResult<Attributes>;
    /// Changes the given attributes of a target group.
    async fn modify_target_group_attributes(
        &self,
        arn: &str,
        attributes: &Attributes,
    ) -> CloudResult<()>;

    /// The tags of each resource, asked for in slices of [`RESOURCES_PER_CALL`]. What does not
    /// exist is left out.
    async fn resource_tags(&self, arns: &BTreeSet<String>) -> CloudResult<BTreeMap<String, Tags>>;
    /// Adds or overwrites tags of a resource. AWS takes one resource a call.
    async fn add_tags(&self, arn: &str, tags: &Tags) -> CloudResult<()>;
    /// Removes tags of a resource. AWS takes one resource a call.
    async fn remove_tags(&self, arn: &str, keys: &BTreeSet<String>) -> CloudResult<()>;
}
