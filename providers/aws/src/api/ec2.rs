//! What the instances need from EC2, in our own types.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;

use crate::{instances::InstanceId, tags::Tags};

/// A server-side filter: the values of one name are alternatives, several filters must all match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// EC2's name of the filter, e.g. `private-dns-name`.
    pub name: String,
    /// At most 200.
    pub values: Vec<String>,
}

impl Filter {
    /// A filter of these values.
    pub fn new<V: Into<String>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self {
            name: name.into(),
            values: values.into_iter().map(Into::into).collect(),
        }
    }
}

/// What an instance is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Starting.
    Pending,
    /// Running.
    Running,
    /// On the way to terminated.
    ShuttingDown,
    /// Gone for good.
    Terminated,
    /// On the way to stopped.
    Stopping,
    /// Stopped; may be started again.
    Stopped,
    /// A state that this version does not know.
    Other,
}

/// Whether a network interface is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceStatus {
    /// Plugged in.
    InUse,
    /// Everything else.
    Other,
}

/// A network interface, of an instance or of a Fargate Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// `eni-…`.
    pub id: String,
    /// Whether it is in use.
    pub status: InterfaceStatus,
    /// The position at the instance; `None` without attachment.
    pub device_index: Option<i32>,
    /// Private IPv4 addresses in the cloud's order.
    pub private_ips: Vec<String>,
    /// IPv6 addresses in the cloud's order.
    pub ipv6: Vec<String>,
    /// The availability zone; empty on interfaces that are part of an instance's answer.
    pub zone: String,
    /// The private DNS name; empty when it has none.
    pub private_dns_name: String,
    /// Whether packets of other addresses than its own are dropped, as those of pods are.
    pub source_dest_check: bool,
}

/// An instance. Texts that the cloud leaves out are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// `i-…`.
    pub id: InstanceId,
    /// `None` when the answer has no state.
    pub state: Option<InstanceState>,
    /// E.g. `m5.large`.
    pub instance_type: String,
    /// Availability zone, e.g. `us-west-2a`.
    pub zone: String,
    /// VPC.
    pub vpc_id: String,
    /// Subnet of the primary interface.
    pub subnet_id: String,
    /// The one public address.
    pub public_ip: String,
    /// Private DNS name: the Node's name in the IP-based scheme.
    pub private_dns_name: String,
    /// Public DNS name.
    pub public_dns_name: String,
    /// Ids of the security groups of the primary interface.
    pub security_groups: Vec<String>,
    /// All interfaces in the cloud's order.
    pub interfaces: Vec<Interface>,
    /// Tags.
    pub tags: Tags,
}

impl Instance {
    /// The interface that the instance was started with; `None` when the answer has none.
    pub fn primary_interface(&self) -> Option<&Interface> {
        let attached = self
            .interfaces
            .iter()
            .filter(|one| one.device_index.is_some());
        attached.min_by_key(|one| one.device_index)
    }

    /// Whether it is definitely running: only then it may become a target.
    pub fn is_running(&self) -> bool {
        self.state == Some(InstanceState::Running)
    }
}

/// An availability zone, local zone or wavelength zone of the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// E.g. `us-west-2a`.
    pub name: String,
    /// E.g. `usw2-az2`.
    pub id: String,
    /// `availability-zone`, `local-zone`, `wavelength-zone`.
    pub kind: String,
}

/// Network nodes above each instance, the outermost first. Instances without topology are absent.
pub type TopologyNodes = BTreeMap<InstanceId, Vec<String>>;

/// The EC2 calls of the instances. Each answers for all pages or fails as a whole.
#[async_trait]
pub trait Ec2: Send + Sync {
    /// `DescribeInstances` by ids, in one call: the caller caps the number. EC2 refuses the whole
    /// call when one id does not exist.
    async fn describe_instances(&self, ids: &[InstanceId]) -> CloudResult<Vec<Instance>>;

    /// `DescribeInstances` by filters, all pages.
    async fn find_instances(&self, filters: &[Filter]) -> CloudResult<Vec<Instance>>;

    /// `DescribeAvailabilityZones`: the zones that this account may use.
    async fn describe_availability_zones(&self) -> CloudResult<Vec<Zone>>;

    /// `DescribeInstanceTopology` of at most 100 instances, all pages.
    async fn describe_instance_topology(&self, ids: &[InstanceId]) -> CloudResult<TopologyNodes>;

    /// `DescribeNetworkInterfaces` by filters, all pages.
    async fn describe_network_interfaces(&self, filters: &[Filter]) -> CloudResult<Vec<Interface>>;
}
