//! Services, Nodes and settings for the tests of this module.

use std::sync::Arc;

use ccm_core::kube::{LoadBalancerIngress, Node, Service, ServicePort};

use super::settings::Settings;
use crate::{
    config::{HealthProbe, HealthProbeMode},
    tags::ClusterTags,
};

/// The UID of [`service`]; its load balancer is [`LB`].
pub(crate) const UID: &str = "12345678-1234-1234-1234-123456789abc";
/// The load balancer name of [`UID`].
pub(crate) const LB: &str = "a12345678123412341234123456789ab";

/// `shop/web` with an NLB annotation and these TCP ports and node ports.
pub(crate) fn service(ports: &[(i32, i32)]) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = Some("shop".to_owned());
    service.metadata.name = Some("web".to_owned());
    service.metadata.uid = Some(UID.to_owned());
    service.spec.type_ = Some("LoadBalancer".to_owned());
    service.spec.session_affinity = Some("None".to_owned());
    service.spec.external_traffic_policy = Some("Cluster".to_owned());
    service.spec.ports = ports
        .iter()
        .map(|(port, node_port)| ServicePort {
            name: Some(format!("p{port}")),
            protocol: Some("TCP".to_owned()),
            port: *port,
            node_port: Some(*node_port).filter(|port| *port != 0),
            ..ServicePort::default()
        })
        .collect();
    annotate(
        &mut service,
        "service.beta.kubernetes.io/aws-load-balancer-type",
        "nlb",
    );
    service
}

/// Sets an annotation.
pub(crate) fn annotate(service: &mut Service, key: &str, value: &str) {
    service
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
}

/// Sets `ALB-<key>`.
pub(crate) fn alb(service: &mut Service, key: &str, value: &str) {
    annotate(
        service,
        &format!("service.beta.kubernetes.io/aws-load-balancer-{key}"),
        value,
    );
}

/// Puts these host names into the status.
pub(crate) fn with_status(service: &mut Service, hosts: &[&str]) {
    service.status.load_balancer.ingress = Some(
        hosts
            .iter()
            .map(|host| LoadBalancerIngress {
                hostname: Some((*host).to_owned()),
                ..LoadBalancerIngress::default()
            })
            .collect(),
    );
}

/// A Node of that instance.
pub(crate) fn node(instance: &str) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(format!("node-{instance}"));
    node.spec.provider_id = Some(format!("aws:///us-west-2a/{instance}"));
    Arc::new(node)
}

/// Settings of the cluster `kite`.
pub(crate) fn settings() -> Settings {
    Settings {
        cluster_name: "kubernetes".to_owned(),
        tags: ClusterTags::new("", "kite").unwrap().unwrap(),
        vpc_id: "vpc-1".to_owned(),
        fallback_subnet: None,
        disable_node_rules: false,
        delete_released: false,
        elb_security_group: None,
        managed_security_groups: false,
        health_probe: HealthProbe {
            mode: HealthProbeMode::ServiceNodePort,
            port: 10256,
            path: "/healthz".to_owned(),
        },
    }
}

/// The same Service without the annotation: its load balancer is a classic one.
pub(crate) fn classic(ports: &[(i32, i32)]) -> Service {
    let mut service = service(ports);
    service.metadata.annotations = None;
    service
}
