//! Objects as a kubelet or a user writes them.

use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};

/// The taint that a kubelet with an external cloud provider registers with.
const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The right to read metrics, as the documentation of metrics gives it: to the account
/// `default/scraper` and to a user who comes with a certificate.
pub const SCRAPERS: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: scraper
rules:
  - nonResourceURLs: [/metrics]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: scraper
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: scraper
subjects:
  - kind: ServiceAccount
    name: scraper
    namespace: default
  - kind: User
    apiGroup: rbac.authorization.k8s.io
    name: scraper-with-a-certificate
";

/// A Node with the cloud taint, as a kubelet registers it.
///
/// # Panics
/// The object is not a Node.
pub fn tainted(name: &str) -> Node {
    node(json!({
        "metadata": { "name": name },
        "spec": { "taints": [{ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }] },
    }))
}

/// An initialised Node of the given provider id.
///
/// # Panics
/// The object is not a Node.
pub fn node_named(name: &str, provider_id: &str) -> Node {
    node(json!({ "metadata": { "name": name }, "spec": { "providerID": provider_id } }))
}

/// A Node from JSON.
///
/// # Panics
/// The object is not a Node.
#[expect(clippy::expect_used, reason = "a test that writes nonsense must fail")]
pub fn node(object: Value) -> Node {
    serde_json::from_value(object).expect("a Node")
}

/// An NLB Service with the given ports `(port, node port)`, TCP.
///
/// # Panics
/// Never: the object is a Service.
#[expect(clippy::expect_used, reason = "a test that writes nonsense must fail")]
pub fn service(name: &str, ports: &[(i32, i32)]) -> Service {
    let ports: Vec<Value> = ports
        .iter()
        .map(|(port, node_port)| {
            json!({ "name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP" })
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": "shop",
            "annotations": { "service.beta.kubernetes.io/aws-load-balancer-type": "nlb" },
        },
        "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": ports },
    }))
    .expect("a Service")
}
