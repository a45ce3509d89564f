//! Objects for the unit tests of this folder.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::predicates::CLEANUP_FINALIZER;
use crate::kube::{Node, Service, ServicePort, ServiceSpec};

/// `shop/web` of type LoadBalancer with one port.
pub(super) fn service() -> Service {
    Service {
        metadata: ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
            uid: Some("uid-1".to_owned()),
            resource_version: Some("10".to_owned()),
            ..ObjectMeta::default()
        },
        spec: ServiceSpec {
            type_: Some("LoadBalancer".to_owned()),
            external_traffic_policy: Some("Cluster".to_owned()),
            ports: vec![ServicePort {
                name: Some("http".to_owned()),
                protocol: Some("TCP".to_owned()),
                port: 80,
                node_port: Some(30080),
                ..ServicePort::default()
            }],
            ..ServiceSpec::default()
        },
        ..Service::default()
    }
}

/// The same with our finalizer.
pub(super) fn finalized() -> Service {
    let mut service = service();
    service.metadata.finalizers = Some(vec![CLEANUP_FINALIZER.to_owned()]);
    service
}

/// Marks as being deleted.
pub(super) fn delete(service: &mut Service) {
    service.metadata.deletion_timestamp = Some(Time("2026-01-01T00:00:00Z".parse().unwrap()));
}

/// Sets an annotation.
pub(super) fn annotate(service: &mut Service, key: &str, value: &str) {
    service
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
}

/// A plain Node with a provider id.
pub(super) fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.spec.provider_id = Some(format!("fake:///{name}"));
    node
}
