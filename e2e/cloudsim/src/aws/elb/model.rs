//! Classic load balancers as plain structs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use super::super::model::Tags;
use crate::clock::as_text;

/// A listener of a classic load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassicListener {
    /// Port of the load balancer.
    pub port: u16,
    /// `TCP`, `SSL`, `HTTP` or `HTTPS`.
    pub protocol: String,
    /// Port of the instances.
    pub instance_port: u16,
    /// `TCP`, `SSL`, `HTTP` or `HTTPS`.
    pub instance_protocol: String,
    /// For `SSL` and `HTTPS`: the ARN of a certificate.
    pub certificate: Option<String>,
    /// Names of the policies in force on this listener.
    pub policies: BTreeSet<String>,
}

/// Health check of a classic load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassicHealthCheck {
    /// `TCP:30080`, `SSL:443`, `HTTP:10256/healthz` or `HTTPS:443/`.
    pub target: String,
    /// Seconds between checks.
    pub interval: u32,
    /// Seconds until a check fails.
    pub timeout: u32,
    /// Failures until an instance is out of service.
    pub unhealthy: u32,
    /// Successes until an instance is in service.
    pub healthy: u32,
}

/// A policy that listeners or instance ports of one load balancer may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassicPolicy {
    /// `ProxyProtocolPolicyType` or `SSLNegotiationPolicyType`.
    pub kind: String,
    /// Attributes.
    pub attributes: BTreeMap<String, String>,
}

/// Attributes of a classic load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassicAttributes {
    /// Whether instances of all zones get the same share.
    pub cross_zone: bool,
    /// Whether access logs are written.
    pub access_log: bool,
    /// Minutes between access logs, 5 or 60.
    pub access_log_interval: Option<u32>,
    /// Bucket of access logs.
    pub access_log_bucket: Option<String>,
    /// Prefix in the bucket.
    pub access_log_prefix: Option<String>,
    /// Whether a deregistered instance may finish its connections.
    pub draining: bool,
    /// Seconds until draining ends.
    pub draining_timeout: u32,
    /// Seconds until an idle connection is closed.
    pub idle_timeout: u32,
    /// `monitor`, `defensive` or `strictest`.
    pub desync_mitigation: String,
}

impl Default for ClassicAttributes {
    fn default() -> Self {
        Self {
            cross_zone: false,
            access_log: false,
            access_log_interval: None,
            access_log_bucket: None,
            access_log_prefix: None,
            draining: false,
            draining_timeout: 300,
            idle_timeout: 60,
            desync_mitigation: "defensive".to_owned(),
        }
    }
}

/// A classic load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassicLoadBalancer {
    /// Name, which is also its key.
    pub name: String,
    /// DNS name.
    pub dns_name: String,
    /// `internet-facing` or `internal`.
    pub scheme: String,
    /// VPC.
    pub vpc_id: String,
    /// Subnets, at most one per zone.
    pub subnets: BTreeSet<String>,
    /// Security groups, never empty.
    pub security_groups: BTreeSet<String>,
    /// Listeners by port.
    pub listeners: BTreeMap<u16, ClassicListener>,
    /// Policies by name, those of AWS that are in use included.
    pub policies: BTreeMap<String, ClassicPolicy>,
    /// Instance port → names of the policies in force on it.
    pub backend_policies: BTreeMap<u16, BTreeSet<String>>,
    /// Health check.
    pub health_check: ClassicHealthCheck,
    /// Registered instances.
    pub instances: BTreeSet<String>,
    /// Attributes.
    pub attributes: ClassicAttributes,
    /// Tags.
    pub tags: Tags,
    /// Time of creation.
    #[serde(serialize_with = "as_text")]
    pub created: Timestamp,
    /// When the health of a registered instance is known.
    #[serde(skip)]
    pub(crate) known_at: BTreeMap<String, Timestamp>,
    /// Deleted, yet visible to reads until then.
    #[serde(skip)]
    pub(crate) ghost_until: Option<Timestamp>,
}
