//! Settings of a simulated API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use ipnet::{IpNet, Ipv4Net};
use jiff::Timestamp;

/// Who a token belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User name as in `TokenReview.status.user.username`.
    pub name: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}

impl User {
    /// A user without groups.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            groups: Vec::new(),
        }
    }
}

/// Settings of a simulated API server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of UIDs, generated names and allocations: equal seeds give equal runs.
    pub seed: u64,
    /// Wall clock at the moment of [`KubeSim::new`](crate::KubeSim::new); it then runs with tokio's clock.
    pub start: Timestamp,
    /// Ranges of cluster IPs: one, or one a family with the primary family first.
    pub service_cidrs: Vec<IpNet>,
    /// Node ports, both ends included.
    pub node_port_range: RangeInclusive<u16>,
    /// Bearer tokens and their users. When empty, nobody has to authenticate.
    pub tokens: BTreeMap<String, User>,
    /// What a `SubjectAccessReview` of a path without a resource allows: paths by user or group.
    /// `None` allows everything to everybody, as any other access review does.
    pub granted_paths: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Adds the taint `node.kubernetes.io/not-ready:NoSchedule` to new Nodes, as the admission
    /// plugin `TaintNodesByCondition` of a real server does.
    pub taint_new_nodes: bool,
    /// What `/version` reports, `v1.33.0`.
    pub version: String,
}

impl Default for Options {
    fn default() -> Self {
        let cidr = Ipv4Net::new_assert([10, 96, 0, 0].into(), 12);
        Self {
            seed: 0,
            start: Timestamp::from_second(1_767_225_600).unwrap_or(Timestamp::UNIX_EPOCH),
            service_cidrs: vec![IpNet::V4(cidr)],
            node_port_range: 30_000..=32_767,
            tokens: BTreeMap::new(),
            granted_paths: None,
            taint_new_nodes: true,
            version: "v1.33.0".to_owned(),
        }
    }
}
