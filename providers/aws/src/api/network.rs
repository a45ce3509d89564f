//! The EC2 calls about the network around load balancers: subnets, route tables, zones, security
//! groups (specification: aws §8.1). Every list is read to its last page.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ccm_core::cloud::CloudResult;
use ipnet::Ipv4Net;

use crate::tags::Tags;

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subnet {
    /// Its id.
    pub id: String,
    /// Its availability zone's name.
    pub zone: String,
    /// Its IPv4 range.
    pub cidr: Option<Ipv4Net>,
    /// Free IPv4 addresses.
    pub free_addresses: i32,
    /// Its tags.
    pub tags: Tags,
}

/// A route table, as far as it tells public from private subnets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteTable {
    /// Whether it is the VPC's main table.
    pub main: bool,
    /// The subnets explicitly associated with it.
    pub subnets: BTreeSet<String>,
    /// Whether a route of it leads to an internet gateway.
    pub public: bool,
}

/// Where a rule lets traffic in from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An IPv4 range.
    Cidr(Ipv4Net),
    /// A security group, and the account it belongs to when EC2 names it.
    Group {
        /// The group.
        id: String,
        /// The account.
        account: Option<String>,
    },
}

/// One ingress rule: what EC2 shows grouped is taken apart. Two rules that differ only in their
/// description cannot exist. Rules from IPv6 ranges and prefix lists are never ours and not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// `tcp`, `udp`, `icmp`, `-1`, …
    pub protocol: String,
    /// The first port, or the ICMP type; `None` for all.
    pub from: Option<i32>,
    /// The last port, or the ICMP code; `None` for all.
    pub to: Option<i32>,
    /// Where from.
    pub source: Source,
}

impl Rule {
    /// A rule for one port from an IPv4 range.
    pub fn port(protocol: &str, port: i32, cidr: Ipv4Net) -> Self {
        Self {
            protocol: protocol.to_owned(),
            from: Some(port),
            to: Some(port),
            source: Source::Cidr(cidr),
        }
    }

    /// The rule that lets "fragmentation needed" in: ICMP type 3, code 4.
    pub fn mtu(cidr: Ipv4Net) -> Self {
        Self {
            protocol: "icmp".to_owned(),
            from: Some(3),
            to: Some(4),
            source: Source::Cidr(cidr),
        }
    }

    /// The IPv4 range it lets in.
    pub const fn cidr(&self) -> Option<Ipv4Net> {
        match self.source {
            Source::Cidr(cidr) => Some(cidr),
            Source::Group { .. } => None,
        }
    }
}

/// Rules with their descriptions; without one the text is empty.
pub type Rules = BTreeMap<Rule, String>;

/// A security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its VPC.
    pub vpc_id: String,
    /// Its tags.
    pub tags: Tags,
    /// Its ingress rules.
    pub rules: Rules,
}

/// Which security groups are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups<'a> {
    /// Those of a VPC that carry one of the tag keys.
    Tagged {
        /// The VPC.
        vpc: &'a str,
        /// The tag keys.
        keys: &'a [String],
    },
    /// The one of that name.
    Named {
        /// The VPC.
        vpc: &'a str,
        /// The name.
        name: &'a str,
    },
    /// Those with these ids; unknown ids are left out of the answer.
    Ids(&'a BTreeSet<String>),
    /// All of a VPC.
    In(&'a str),
}

/// A security group to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSecurityGroup {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its VPC.
    pub vpc_id: String,
    /// Its tags.
    pub tags: Tags,
}

/// The network side of EC2. Errors carry AWS's code.
#[async_trait]
pub trait NetworkApi: Send + Sync {
    /// The subnets of a VPC, in the API's order.
    async fn subnets(&self, vpc: &str) -> CloudResult<Vec<Subnet>>;
    /// The route tables of a VPC.
    async fn route_tables(&self, vpc: &str) -> CloudResult<Vec<RouteTable>>;
    /// The kind of each availability zone, by name: `availability-zone`, `local-zone`, …
    async fn zone_kinds(&self) -> CloudResult<BTreeMap<String, String>>;

    /// Security groups with their rules.
    async fn security_groups(&self, which: &Groups<'_>) -> CloudResult<Vec<SecurityGroup>>;
    /// Makes a security group; its id.
    async fn create_security_group(&self, new: &NewSecurityGroup) -> CloudResult<String>;
    /// Deletes a security group.
    async fn delete_security_group(&self, id: &str) -> CloudResult<()>;
    /// Adds ingress rules, all or none.
    async fn authorize(&self, group: &str, rules: &Rules) -> CloudResult<()>;
    /// Removes ingress rules, all or none.
    async fn revoke(&self, group: &str, rules: &BTreeSet<Rule>) -> CloudResult<()>;
    /// Changes the descriptions of existing ingress rules.
    async fn describe_rules(&self, group: &str, rules: &Rules) -> CloudResult<()>;
    /// Adds or overwrites tags of one EC2 resource.
    async fn tag_resource(&self, id: &str, tags: &Tags) -> CloudResult<()>;
}
