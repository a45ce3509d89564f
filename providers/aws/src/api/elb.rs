//! The calls of the Elastic Load Balancing API of 2012 that classic load balancers need
//! (specification: aws §8.2). A classic load balancer has no ARN: its name says which one it is.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;

use crate::tags::Tags;

/// The most load balancers that one DescribeLoadBalancers or DescribeTags call is asked for by name.
pub const NAMES_PER_CALL: usize = 20;

/// What a listener does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerSpec {
    /// The port it listens on.
    pub port: i32,
    /// `tcp`, `ssl`, `http` or `https`; AWS answers in upper case.
    pub protocol: String,
    /// The port on the instances.
    pub instance_port: i32,
    /// The protocol towards the instances; as `protocol`.
    pub instance_protocol: String,
    /// The ARN of the certificate of an SSL or HTTPS listener.
    pub certificate: Option<String>,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// What it does.
    pub spec: ListenerSpec,
    /// The policies in force on it.
    pub policies: BTreeSet<String>,
}

/// How instances are checked. AWS has no check without one of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// `<protocol>:<port><path>`.
    pub target: String,
    /// Seconds between checks.
    pub interval: i32,
    /// Seconds to wait for an answer.
    pub timeout: i32,
    /// Successes until healthy.
    pub healthy: i32,
    /// Failures until unhealthy.
    pub unhealthy: i32,
}

/// A classic load balancer: one answer tells all but attributes and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its name.
    pub name: String,
    /// Its DNS name.
    pub dns_name: String,
    /// `internal` or `internet-facing`.
    pub scheme: String,
    /// Its subnets, one a zone.
    pub subnets: BTreeSet<String>,
    /// Its security groups, in AWS's order.
    pub security_groups: Vec<String>,
    /// Its listeners, by port.
    pub listeners: BTreeMap<i32, Listener>,
    /// The policies in force on ports of the instances, also on such that no listener uses any more.
    pub backend_policies: BTreeMap<i32, BTreeSet<String>>,
    /// The names of its policies, in force or not.
    pub policies: BTreeSet<String>,
    /// The registered instances.
    pub instances: BTreeSet<String>,
    /// How they are checked; absent in the answers of some emulators.
    pub health: Option<HealthCheck>,
}

/// A classic load balancer to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewLoadBalancer {
    /// Its name.
    pub name: String,
    /// Whether its scheme is `internal`; the scheme is not sent otherwise.
    pub internal: bool,
    /// Its subnets.
    pub subnets: BTreeSet<String>,
    /// Its security groups.
    pub security_groups: Vec<String>,
    /// Its listeners.
    pub listeners: Vec<ListenerSpec>,
    /// Its tags.
    pub tags: Tags,
}

/// A policy to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The name of its type.
    pub kind: &'static str,
    /// The one attribute that it has.
    pub attribute: (&'static str, String),
}

/// Where access logs go. `None` is not ours: neither compared nor sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLog {
    /// Whether they are written.
    pub enabled: bool,
    /// Minutes between two files.
    pub emit_interval: Option<i32>,
    /// The bucket.
    pub bucket: Option<String>,
    /// The prefix in the bucket.
    pub prefix: Option<String>,
}

/// What becomes of open connections to an instance that leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draining {
    /// Whether they may end.
    pub enabled: bool,
    /// Seconds that they get; `None` is not ours.
    pub timeout: Option<i32>,
}

/// The attributes that we own. `None` is not to be changed, or was not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Access logs.
    pub access_log: Option<AccessLog>,
    /// Connection draining.
    pub draining: Option<Draining>,
    /// Seconds after which an idle connection is closed.
    pub idle_timeout: Option<i32>,
    /// Whether each zone's node sends to the instances of all zones.
    pub cross_zone: Option<bool>,
}

/// The Elastic Load Balancing API of 2012. Errors carry AWS's code.
#[async_trait]
pub trait ElbApi: Send + Sync {
    /// The load balancers of these names, [`NAMES_PER_CALL`] at most: one call.
    ///
    /// # Errors
    /// One of them does not exist; then nothing is said about the others.
    async fn load_balancers(&self, names: &BTreeSet<String>) -> CloudResult<Vec<LoadBalancer>>;
    /// All load balancers of the account and region, read to the last page.
    async fn all_load_balancers(&self) -> CloudResult<Vec<LoadBalancer>>;
    /// Makes a load balancer; its DNS name.
    async fn create_load_balancer(&self, new: &NewLoadBalancer) -> CloudResult<String>;
    /// Deletes a load balancer. That there is none is a success.
    async fn delete_load_balancer(&self, name: &str) -> CloudResult<()>;

    /// Adds subnets; all that are attached then. One in a zone that has one replaces that.
    async fn attach_subnets(
        &self,
        name: &str,
        subnets: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>>;
    /// Takes subnets away; all that are attached then. The last one cannot be taken.
    async fn detach_subnets(
        &self,
        name: &str,
        subnets: &BTreeSet<String>,
    ) -> CloudResult<BTreeSet<String>>;
    /// Replaces the security groups.
    async fn apply_security_groups(&self, name: &str, groups: &[String]) -> CloudResult<()>;

    /// Makes listeners.
    async fn create_listeners(&self, name: &str, listeners: &[ListenerSpec]) -> CloudResult<()>;
    /// Deletes the listeners of these ports.
    async fn delete_listeners(&self, name: &str, ports: &BTreeSet<i32>) -> CloudResult<()>;

    /// Whether the load balancer has a policy of that name.
    async fn has_policy(&self, name: &str, policy: &str) -> CloudResult<bool>;
    /// Makes a policy.
    async fn create_policy(&self, name: &str, policy: &Policy) -> CloudResult<()>;
    /// Replaces the policies in force on a port of the instances.
    async fn set_backend_policies(
        &self,
        name: &str,
        instance_port: i32,
        policies: &BTreeSet<String>,
    ) -> CloudResult<()>;
    /// Replaces the policies in force on a listener.
    async fn set_listener_policies(
        &self,
        name: &str,
        port: i32,
        policies: &BTreeSet<String>,
    ) -> CloudResult<()>;

    /// All attributes that we own.
    async fn attributes(&self, name: &str) -> CloudResult<Attributes>;
    /// Changes the given attributes.
    async fn modify_attributes(&self, name: &str, attributes: &Attributes) -> CloudResult<()>;
    /// Replaces the health check.
    async fn configure_health_check(&self, name: &str, check: &HealthCheck) -> CloudResult<()>;

    /// Registers instances, all or none.
    async fn register(&self, name: &str, instances: &[String]) -> CloudResult<()>;
    /// Deregisters instances, all or none.
    async fn deregister(&self, name: &str, instances: &[String]) -> CloudResult<()>;

    /// The tags of a load balancer.
    async fn tags(&self, name: &str) -> CloudResult<Tags>;
    /// Adds or overwrites tags.
    async fn add_tags(&self, name: &str, tags: &Tags) -> CloudResult<()>;
    /// Removes tags.
    async fn remove_tags(&self, name: &str, keys: &BTreeSet<String>) -> CloudResult<()>;
}
