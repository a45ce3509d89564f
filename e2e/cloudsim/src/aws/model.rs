//! The resources as plain structs, for assertions and for `/_sim/state`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use jiff::Timestamp;
use serde::Serialize;

use super::elb::ClassicLoadBalancer;
use crate::clock::as_text;

/// Tags of a resource.
pub type Tags = BTreeMap<String, String>;

/// Life-cycle state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Starting; code 0.
    Pending,
    /// Code 16.
    Running,
    /// On the way to terminated; code 32.
    ShuttingDown,
    /// Code 48.
    Terminated,
    /// On the way to stopped; code 64.
    Stopping,
    /// Code 80.
    Stopped,
}

impl InstanceState {
    /// EC2's number of the state.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
            Self::Stopping => 64,
            Self::Stopped => 80,
        }
    }

    /// EC2's name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }
}

/// A virtual machine. Its addresses are those of its [`Interface`]s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// `i-…`.
    pub id: String,
    /// The launch call that made it.
    pub reservation_id: String,
    /// Life-cycle state.
    pub state: InstanceState,
    /// Such as `m5.large`.
    pub instance_type: String,
    /// Image.
    pub image_id: String,
    /// Availability zone.
    pub zone: String,
    /// VPC.
    pub vpc_id: String,
    /// Subnet of the primary interface.
    pub subnet_id: String,
    /// Private DNS name; empty once terminated.
    pub private_dns_name: String,
    /// Primary private address; `None` once terminated.
    pub private_ip: Option<Ipv4Addr>,
    /// Public address.
    pub public_ip: Option<Ipv4Addr>,
    /// Security groups of the primary interface.
    pub groups: Vec<String>,
    /// Source/destination check of the primary interface.
    pub source_dest_check: bool,
    /// `spot`, or `None` for on-demand.
    pub lifecycle: Option<String>,
    /// Network nodes above the instance, the outermost first; empty for types without topology.
    pub network_nodes: Vec<String>,
    /// Time of launch.
    #[serde(serialize_with = "as_text")]
    pub launch_time: Timestamp,
    /// Tags.
    pub tags: Tags,
    /// The state that follows, and when.
    #[serde(skip)]
    pub(crate) next: Option<(Timestamp, InstanceState)>,
    /// Whether it gets a public address at each start.
    #[serde(skip)]
    pub(crate) wants_public_ip: bool,
    /// When it became terminated.
    #[serde(skip)]
    pub(crate) terminated_at: Option<Timestamp>,
}

/// Where an interface is plugged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    /// `eni-attach-…`.
    pub id: String,
    /// The instance; `None` for interfaces of AWS services (load balancers, Fargate).
    pub instance_id: Option<String>,
    /// Position at the instance.
    pub device_index: u32,
    /// `attached`, `attaching`, `detaching`.
    pub status: String,
}

/// An elastic network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// `eni-…`.
    pub id: String,
    /// Subnet.
    pub subnet_id: String,
    /// VPC.
    pub vpc_id: String,
    /// Availability zone.
    pub zone: String,
    /// What the interface is for.
    pub description: String,
    /// `interface` or `network_load_balancer`.
    pub kind: String,
    /// MAC address.
    pub mac: String,
    /// Private addresses, the primary one first.
    pub private_ips: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    pub ipv6: Vec<Ipv6Addr>,
    /// Security groups.
    pub groups: Vec<String>,
    /// Attachment; `None` while the interface is available.
    pub attachment: Option<Attachment>,
    /// Source/destination check.
    pub source_dest_check: bool,
    /// Tags.
    pub tags: Tags,
    /// When an interface of a deleted load balancer disappears.
    #[serde(skip)]
    pub(crate) release_at: Option<Timestamp>,
}

/// A virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vpc {
    /// `vpc-…`.
    pub id: String,
    /// IPv4 range.
    pub cidr: Ipv4Net,
    /// Tags.
    pub tags: Tags,
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subnet {
    /// `subnet-…`.
    pub id: String,
    /// VPC.
    pub vpc_id: String,
    /// IPv4 range.
    pub cidr: Ipv4Net,
    /// IPv6 range.
    pub ipv6_cidr: Option<Ipv6Net>,
    /// Availability zone.
    pub zone: String,
    /// Tags.
    pub tags: Tags,
}

/// An Internet gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InternetGateway {
    /// `igw-…`.
    pub id: String,
    /// The VPC it is attached to.
    pub vpc_id: Option<String>,
    /// Tags.
    pub tags: Tags,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// IPv4 or IPv6 range.
    pub destination: String,
    /// `local`, or the id of a gateway, instance or interface.
    pub target: String,
}

/// A route table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteTable {
    /// `rtb-…`.
    pub id: String,
    /// VPC.
    pub vpc_id: String,
    /// The association that makes it the main table of its VPC.
    pub main_association: Option<String>,
    /// Association id → subnet.
    pub associations: BTreeMap<String, String>,
    /// Routes, the local one first.
    pub routes: Vec<Route>,
    /// Tags.
    pub tags: Tags,
}

/// Where traffic that a rule allows comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// An IPv4 range.
    Ipv4(Ipv4Net),
    /// An IPv6 range.
    Ipv6(Ipv6Net),
    /// Another security group.
    Group(String),
    /// A prefix list.
    PrefixList(String),
}

/// What makes a rule the same rule: everything but its id and description.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RuleKey {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `-1` for all, or a number.
    pub protocol: String,
    /// First port, or ICMP type.
    pub from_port: Option<i32>,
    /// Last port, or ICMP code.
    pub to_port: Option<i32>,
    /// Source.
    pub peer: Peer,
}

/// An ingress rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// `sgr-…`.
    pub id: String,
    /// What it allows.
    #[serde(flatten)]
    pub key: RuleKey,
    /// Text for people.
    pub description: Option<String>,
}

/// A security group with its ingress rules in the order of their creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecurityGroup {
    /// `sg-…`.
    pub id: String,
    /// Name, unique in the VPC.
    pub name: String,
    /// Text for people.
    pub description: String,
    /// VPC.
    pub vpc_id: String,
    /// Ingress rules.
    pub rules: Vec<Rule>,
    /// Tags.
    pub tags: Tags,
}

/// An elastic IP address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Address {
    /// `eipalloc-…`.
    pub allocation_id: String,
    /// The address.
    pub public_ip: Ipv4Addr,
    /// The load balancer that uses it.
    pub load_balancer_arn: Option<String>,
    /// Tags.
    pub tags: Tags,
}

/// A subnet of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubnetMapping {
    /// Subnet.
    pub subnet_id: String,
    /// Availability zone of the subnet.
    pub zone: String,
    /// Elastic IP, for internet-facing load balancers.
    pub allocation_id: Option<String>,
    /// Fixed address, for internal load balancers.
    pub private_ip: Option<Ipv4Addr>,
}

/// A network load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LoadBalancer {
    /// ARN.
    pub arn: String,
    /// Name.
    pub name: String,
    /// DNS name.
    pub dns_name: String,
    /// `internet-facing` or `internal`.
    pub scheme: String,
    /// VPC.
    pub vpc_id: String,
    /// `ipv4` or `dualstack`.
    pub ip_address_type: String,
    /// Subnets in the order of their zones.
    pub subnets: Vec<SubnetMapping>,
    /// Security groups; `None` if it was made without, so that none can be added.
    pub security_groups: Option<BTreeSet<String>>,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
    /// Tags.
    pub tags: Tags,
    /// Time of creation.
    #[serde(serialize_with = "as_text")]
    pub created: Timestamp,
    /// When it becomes active.
    #[serde(skip)]
    pub(crate) active_at: Timestamp,
    /// Deleted, yet visible to reads until then.
    #[serde(skip)]
    pub(crate) ghost_until: Option<Timestamp>,
}

/// Health check of a target group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// `TCP`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// `traffic-port` or a number.
    pub port: String,
    /// For HTTP and HTTPS.
    pub path: Option<String>,
    /// Accepted status codes, for HTTP and HTTPS.
    pub matcher: Option<String>,
    /// Seconds between checks.
    pub interval: u32,
    /// Seconds until a check fails.
    pub timeout: u32,
    /// Successes until a target is healthy.
    pub healthy: u32,
    /// Failures until a target is unhealthy.
    pub unhealthy: u32,
}

/// A registered target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    /// Instance id, or address.
    pub id: String,
    /// Port.
    pub port: u16,
    /// Whether it is being deregistered.
    pub draining: bool,
    /// When health is known.
    #[serde(skip)]
    pub(crate) known_at: Timestamp,
    /// When a draining target is gone.
    #[serde(skip)]
    pub(crate) gone_at: Option<Timestamp>,
}

/// A target group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetGroup {
    /// ARN.
    pub arn: String,
    /// Name.
    pub name: String,
    /// `TCP`, `UDP`, `TLS` or `TCP_UDP`.
    pub protocol: String,
    /// Default port of targets.
    pub port: u16,
    /// VPC.
    pub vpc_id: String,
    /// `instance` or `ip`.
    pub target_type: String,
    /// `ipv4` or `ipv6`.
    pub ip_address_type: String,
    /// Health check.
    pub health_check: HealthCheck,
    /// Targets, ordered by id and port.
    pub targets: Vec<Target>,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
    /// Tags.
    pub tags: Tags,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listener {
    /// ARN.
    pub arn: String,
    /// Load balancer.
    pub load_balancer_arn: String,
    /// Port.
    pub port: u16,
    /// `TCP`, `UDP`, `TLS` or `TCP_UDP`.
    pub protocol: String,
    /// For TLS.
    pub ssl_policy: Option<String>,
    /// For TLS.
    pub certificates: Vec<String>,
    /// For TLS.
    pub alpn: Vec<String>,
    /// Where it forwards to.
    pub target_group_arn: String,
    /// Tags.
    pub tags: Tags,
}

/// The whole state at one moment, keyed by id or ARN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// VPCs.
    pub vpcs: BTreeMap<String, Vpc>,
    /// Subnets.
    pub subnets: BTreeMap<String, Subnet>,
    /// Internet gateways.
    pub internet_gateways: BTreeMap<String, InternetGateway>,
    /// Route tables.
    pub route_tables: BTreeMap<String, RouteTable>,
    /// Security groups.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// Instances, terminated ones included until they are forgotten.
    pub instances: BTreeMap<String, Instance>,
    /// Network interfaces.
    pub interfaces: BTreeMap<String, Interface>,
    /// Elastic IP addresses.
    pub addresses: BTreeMap<String, Address>,
    /// Network load balancers, without deleted ones.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// Classic load balancers by name, without deleted ones.
    pub classic_load_balancers: BTreeMap<String, ClassicLoadBalancer>,
    /// Listeners.
    pub listeners: BTreeMap<String, Listener>,
    /// Target groups.
    pub target_groups: BTreeMap<String, TargetGroup>,
}

impl Snapshot {
    /// The load balancer with this name.
    #[must_use]
    pub fn load_balancer(&self, name: &str) -> Option<&LoadBalancer> {
        self.load_balancers.values().find(|lb| lb.name == name)
    }

    /// The listeners of a load balancer, by port.
    #[must_use]
    pub fn listeners_of(&self, load_balancer_arn: &str) -> BTreeMap<u16, &Listener> {
        let all = self.listeners.values();
        let own = all.filter(|listener| listener.load_balancer_arn == load_balancer_arn);
        own.map(|listener| (listener.port, listener)).collect()
    }

    /// The target group with this name.
    #[must_use]
    pub fn target_group(&self, name: &str) -> Option<&TargetGroup> {
        self.target_groups.values().find(|group| group.name == name)
    }

    /// The security group with this name.
    #[must_use]
    pub fn security_group(&self, name: &str) -> Option<&SecurityGroup> {
        self.security_groups
            .values()
            .find(|group| group.name == name)
    }
}
