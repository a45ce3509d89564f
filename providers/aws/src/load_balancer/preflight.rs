//! Everything about a Service that can be judged without asking the cloud
//! (specification: aws §4.4). The first error wins and nothing was called before. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::{
    cloud::{CloudError, CloudResult, LoadBalancerName},
    kube::{Node, Service, ServicePort},
};
use ipnet::{IpNet, Ipv4Net};

use super::{health_check::health_check, settings::Settings};
use crate::{
    annotations::{self, Flavour, PortSet},
    api::elbv2::{Attributes, HealthCheck},
    names,
    tags::{Lifecycle, SERVICE_NAME, Tags},
};

/// What stands after `.elb` in the DNS names of classic load balancers, by partition.
const DNS_SUFFIXES: &[&str] = &[
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "c2s.ic.gov",
    "sc2s.sgov.gov",
    "cloud.adc-e.uk",
    "csp.hci.ic.gov",
];

/// The target group attributes that the annotation may set to `true` or `false`, as in the Go manager.
const BOOLEAN_ATTRIBUTES: &[&str] = &["preserve_client_ip.enabled", "proxy_protocol_v2.enabled"];

/// Seconds that a target's open connections get; ours, the Go manager refuses it (CASE-LB-20).
const DEREGISTRATION_DELAY: &str = "deregistration_delay.timeout_seconds";

/// The longest delay that AWS takes, in seconds.
const LONGEST_DEREGISTRATION_DELAY: u32 = 3600;

/// Prefixes of tag keys that belong to AWS and Kubernetes; the annotation cannot set them.
const RESERVED_TAG_PREFIXES: &[&str] = &["aws:", "kubernetes.io/"];

/// One port of the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The listener's port.
    pub port: i32,
    /// The port on the Nodes.
    pub node_port: i32,
    /// The listener's protocol: `TCP`, `UDP` or `TLS`.
    pub listener_protocol: &'static str,
    /// The target group's protocol: `TCP`, `UDP` or `TLS`.
    pub target_protocol: &'static str,
    /// The certificate of a TLS listener.
    pub certificate: Option<String>,
    /// The policy of a TLS listener; `None` leaves it to AWS.
    pub ssl_policy: Option<String>,
    /// The name of its target group.
    pub target_group: String,
}

/// A Service that passed: all that is wanted, before the cloud was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The load balancer's name.
    pub name: LoadBalancerName,
    /// The managed security group's name.
    pub managed_group: String,
    /// Whether the load balancer is internal.
    pub internal: bool,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Whether they are UDP.
    pub udp: bool,
    /// Clients.
    pub sources: BTreeSet<Ipv4Net>,
    /// How Nodes are checked.
    pub health: HealthCheck,
    /// Subnets by id or name.
    pub subnets: Option<Vec<String>>,
    /// Elastic IPs, one a subnet.
    pub allocations: Vec<String>,
    /// Private addresses, one a subnet.
    pub private_ipv4: Vec<String>,
    /// The user's own security groups.
    pub security_groups: BTreeSet<String>,
    /// Tags of the load balancer, its listeners and target groups.
    pub tags: Tags,
    /// Tags of the managed security group.
    pub group_tags: Tags,
    /// Load balancer attributes.
    pub attributes: Attributes,
    /// Target group attributes.
    pub target_group_attributes: Attributes,
    /// Which Nodes are targets.
    pub node_labels: BTreeMap<String, String>,
    /// Ports that no other Service has.
    pub own_ports: BTreeSet<i32>,
}

/// Checks the Service.
///
/// # Errors
/// Class `Invalid`; the text names field or annotation.
pub fn preflight(service: &Service, settings: &Settings) -> CloudResult<Request> {
    type_change(service)?;
    let extra = &annotations::EXTRA_SECURITY_GROUPS;
    if extra.is_present(service) {
        return Err(CloudError::invalid(format!(
            "BYO extra security group annotation {:?} is not supported by NLB",
            extra.key
        )));
    }
    let target_group_attributes = target_group_attributes(service)
        .map_err(|e| e.context("error validating target group attributes"))?;
    no_affinity(service)?;
    let udp = one_protocol(service, &["TCP", "UDP"])? == "UDP";
    let sources = sources(service)?;
    let health = health_check(service, &settings.health_probe)?;
    let ports = ports(service, settings, &health)?;
    no_address(service)?;
    let user_tags = user_tags(service)?;
    Ok(Request {
        name: name(service)?,
        managed_group: managed_group(service, settings),
        internal: annotations::INTERNAL.get(service)?.unwrap_or(false),
        own_ports: own_ports(service),
        ports,
        udp,
        sources,
        health,
        subnets: annotations::SUBNETS.get(service)?,
        allocations: trimmed(annotations::EIP_ALLOCATIONS.get(service)?),
        private_ipv4: trimmed(annotations::PRIVATE_IPV4_ADDRESSES.get(service)?),
        security_groups: annotations::SECURITY_GROUPS
            .get(service)?
            .unwrap_or_default()
            .into_iter()
            .collect(),
        tags: tags(service, settings, user_tags.clone()),
        group_tags: settings.tags.build(Lifecycle::Owned, user_tags),
        attributes: attributes(service)?,
        target_group_attributes,
        node_labels: annotations::TARGET_NODE_LABELS
            .get(service)?
            .unwrap_or_default(),
    })
}

/// The load balancer's name.
///
/// # Errors
/// A Service without UID.
pub fn name(service: &Service) -> CloudResult<LoadBalancerName> {
    names::load_balancer(service.uid()).map_err(|e| CloudError::invalid(e.to_string()))
}

/// The managed security group's name.
pub fn managed_group(service: &Service, settings: &Settings) -> String {
    names::nlb_security_group(
        &settings.cluster_name,
        service.namespace(),
        service.name(),
        service.uid(),
    )
}

/// `<namespace>/<name>`, as in the tag of load balancers.
pub fn service_key(service: &Service) -> String {
    format!("{}/{}", service.namespace(), service.name())
}

/// Node ports and the health check node port: the API server gives them to one Service only.
pub fn own_ports(service: &Service) -> BTreeSet<i32> {
    service
        .spec
        .ports
        .iter()
        .filter_map(ServicePort::allocated_node_port)
        .chain(service.spec.health_check_node_port)
        .collect()
}

/// Whether the Node has all the labels; an empty value asks for the key alone.
pub fn node_matches(node: &Node, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, want)| {
        node.label(key)
            .is_some_and(|have| want.is_empty() || have == want)
    })
}

/// Whether the name is one that AWS gives to classic load balancers.
fn is_classic_host(host: &str) -> bool {
    DNS_SUFFIXES.iter().any(|suffix| {
        host.strip_suffix(suffix)
            .is_some_and(|rest| rest.ends_with(".elb."))
    })
}

/// The annotation must not ask for another kind than the status shows.
pub(super) fn type_change(service: &Service) -> CloudResult<()> {
    let Some(first) = service.ingress().first() else {
        return Ok(());
    };
    let classic = is_classic_host(first.hostname.as_deref().unwrap_or_default());
    let network = annotations::flavour(service) == Flavour::Network;
    let kind = match (network, classic) {
        (true, true) => "NLB",
        (false, false) => "Classic Load Balancer",
        _ => return Ok(()),
    };
    Err(CloudError::invalid(format!(
        "cannot update Load Balancer Type annotation {:?} after creation for {kind}",
        annotations::TYPE.key
    )))
}

pub(super) fn no_affinity(service: &Service) -> CloudResult<()> {
    match service.spec.session_affinity.as_deref() {
        None | Some("None") => Ok(()),
        Some(affinity) => Err(CloudError::invalid(format!(
            "unsupported load balancer affinity: {affinity}"
        ))),
    }
}

pub(super) fn no_address(service: &Service) -> CloudResult<()> {
    let given = service.spec.load_balancer_ip.as_deref();
    if given.is_none_or(str::is_empty) {
        return Ok(());
    }
    Err(CloudError::invalid(
        "LoadBalancerIP cannot be specified for AWS ELB",
    ))
}

fn target_group_attributes(service: &Service) -> CloudResult<Attributes> {
    let wanted = annotations::TARGET_GROUP_ATTRIBUTES
        .get(service)?
        .unwrap_or_default();
    for (key, value) in &wanted {
        if value.is_empty() {
            return Err(CloudError::invalid(format!(
                "attribute value is empty for {key:?}"
            )));
        }
        let (accepted, fits) = match key.as_str() {
            DEREGISTRATION_DELAY => (
                "seconds from 0 to 3600",
                value
                    .parse()
                    .is_ok_and(|seconds: u32| seconds <= LONGEST_DEREGISTRATION_DELAY),
            ),
            other if BOOLEAN_ATTRIBUTES.contains(&other) => {
                ("true or false", matches!(value.as_str(), "true" | "false"))
            }
            _ => {
                return Err(CloudError::invalid(format!(
                    "the attribute {key:?} is not supported by the controller or is invalid"
                )));
            }
        };
        if !fits {
            return Err(CloudError::invalid(format!(
                "invalid attribute value for {key:?}: {value} (accepted: {accepted})"
            )));
        }
        let udp = service
            .spec
            .ports
            .iter()
            .any(|port| port.protocol() == "UDP");
        if key == "preserve_client_ip.enabled" && value == "false" && udp {
            return Err(CloudError::invalid(
                "client IP preservation can't be disabled for UDP ports",
            ));
        }
    }
    Ok(wanted)
}

/// The protocol of all ports, one of those.
pub(super) fn one_protocol<'a>(service: &'a Service, known: &[&str]) -> CloudResult<&'a str> {
    let mut protocols = service.spec.ports.iter().map(ServicePort::protocol);
    let Some(first) = protocols.next() else {
        return Err(CloudError::invalid("requested load balancer with no ports"));
    };
    if protocols.any(|other| other != first) {
        return Err(CloudError::invalid(
            "mixed protocol is not supported for LoadBalancer",
        ));
    }
    if !known.contains(&first) {
        return Err(CloudError::invalid(format!(
            "Protocol {first} not supported by LoadBalancer"
        )));
    }
    Ok(first)
}

pub(super) fn sources(service: &Service) -> CloudResult<BTreeSet<Ipv4Net>> {
    annotations::source_ranges(service)?
        .into_iter()
        .map(|range| match range {
            IpNet::V4(range) => Ok(range),
            IpNet::V6(range) => Err(CloudError::invalid(format!(
                "source range {range} is IPv6, but the load balancer has IPv4 addresses only: \
                 remove it from spec.loadBalancerSourceRanges or the annotation {}",
                annotations::SOURCE_RANGES.key
            ))),
        })
        .collect()
}

fn ports(service: &Service, settings: &Settings, health: &HealthCheck) -> CloudResult<Vec<Port>> {
    let certificate = annotations::SSL_CERT
        .get(service)?
        .filter(|arn| !arn.is_empty());
    let selected = annotations::SSL_PORTS.get(service)?.unwrap_or(PortSet::All);
    let policy = annotations::SSL_NEGOTIATION_POLICY
        .get(service)?
        .filter(|p| !p.is_empty());
    let backend_tls = annotations::BACKEND_PROTOCOL.get(service)?.as_deref() == Some("ssl");
    let port = |port: &ServicePort| {
        let node_port = port
            .allocated_node_port()
            .ok_or_else(|| no_node_port(port))?;
        let base = if port.protocol() == "UDP" {
            "UDP"
        } else {
            "TCP"
        };
        let certificate = certificate
            .clone()
            .filter(|_| base == "TCP" && selects(&selected, port));
        let tls = certificate.is_some();
        let target_protocol = if tls && backend_tls { "TLS" } else { base };
        Ok(Port {
            port: port.port,
            node_port,
            listener_protocol: if tls { "TLS" } else { base },
            target_protocol,
            certificate,
            ssl_policy: policy.clone().filter(|_| tls),
            target_group: names::target_group(&names::TargetGroupKey {
                cluster_id: settings.tags.id(),
                namespace: service.namespace(),
                service: service.name(),
                port: port.port,
                node_port,
                protocol: target_protocol,
                target_type: names::TARGET_TYPE_INSTANCE,
                health_protocol: &health.protocol,
                health_interval: health.interval,
            }),
        })
    };
    service.spec.ports.iter().map(port).collect()
}

/// A blank after a comma in the annotation is forgiven.
fn selects(ports: &PortSet, port: &ServicePort) -> bool {
    if ports.contains(port.port, port.name.as_deref()) {
        return true;
    }
    let PortSet::Some { names, .. } = ports else {
        return false;
    };
    names.iter().map(|name| name.trim()).any(|name| {
        name.parse() == Ok(port.port) || port.name.as_deref().is_some_and(|own| own == name)
    })
}

pub(super) fn no_node_port(port: &ServicePort) -> CloudError {
    CloudError::invalid(format!(
        "port {:?} ({}/{}) has no node port, which a load balancer with instance targets needs: \
         set spec.allocateLoadBalancerNodePorts to true or give the port a nodePort",
        port.name.as_deref().unwrap_or_default(),
        port.port,
        port.protocol()
    ))
}

fn trimmed(words: Option<Vec<String>>) -> Vec<String> {
    words
        .unwrap_or_default()
        .iter()
        .map(|word| word.trim().to_owned())
        .collect()
}

pub(super) fn user_tags(service: &Service) -> CloudResult<Tags> {
    let mut tags = annotations::ADDITIONAL_RESOURCE_TAGS
        .get(service)?
        .unwrap_or_default();
    tags.retain(|key, _| {
        !RESERVED_TAG_PREFIXES
            .iter()
            .any(|prefix| key.starts_with(prefix))
    });
    Ok(tags)
}

pub(super) fn tags(service: &Service, settings: &Settings, mut tags: Tags) -> Tags {
    tags.insert(SERVICE_NAME.to_owned(), service_key(service));
    settings.tags.build(Lifecycle::Owned, tags)
}

fn attributes(service: &Service) -> CloudResult<Attributes> {
    let cross_zone = annotations::CROSS_ZONE_LOAD_BALANCING_ENABLED
        .get(service)?
        .unwrap_or(false);
    let logs = annotations::ACCESS_LOG_ENABLED
        .get(service)?
        .unwrap_or(false);
    let mut wanted = Attributes::from([
        (
            "load_balancing.cross_zone.enabled".to_owned(),
            cross_zone.to_string(),
        ),
        ("access_logs.s3.enabled".to_owned(), logs.to_string()),
    ]);
    if logs {
        for (key, annotation) in [
            (
                "access_logs.s3.bucket",
                &annotations::ACCESS_LOG_S3_BUCKET_NAME,
            ),
            (
                "access_logs.s3.prefix",
                &annotations::ACCESS_LOG_S3_BUCKET_PREFIX,
            ),
        ] {
            wanted.insert(key.to_owned(), annotation.get(service)?.unwrap_or_default());
        }
    }
    Ok(wanted)
}

#[cfg(test)]
#[path = "preflight_tests.rs"]
mod tests;
