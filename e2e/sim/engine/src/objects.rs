//! The objects of the simulated cluster: what kubelets and people write.

use serde_json::{Value, json};

/// The finalizer of the service controller.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// The taint that a kubelet with an external cloud provider registers with.
pub const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The taint of a Node whose machine is shut down.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The label that keeps a Node out of load balancers.
pub const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The start of every key that others put on objects: it has to survive.
pub const MARK: &str = "example.com/";

/// The range of all pods.
pub const CLUSTER_CIDR: &str = "10.244.0.0/16";

/// The range of all pods in the second family.
pub const CLUSTER_CIDR_6: &str = "fd00:10:244::/48";

/// Whether a range is one of pods.
pub fn is_of_pods(range: &str) -> bool {
    range.starts_with("10.244.") || range.starts_with("fd00:10:244:")
}

/// The ranges of a Node's pods.
pub fn ranges(node: &Value) -> Vec<&str> {
    let all = node.pointer("/spec/podCIDRs").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The addresses that a Service shows.
pub fn addresses(service: &Value) -> Vec<&str> {
    let all = service.pointer("/status/loadBalancer/ingress");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    all.map(|shown| text(shown, "/ip"))
        .filter(|ip| !ip.is_empty())
        .collect()
}

/// The namespace of all Services.
pub const NAMESPACE: &str = "shop";

/// The text at a place of an object; empty when there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The finalizers of an object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let all = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether a Node carries a taint of that key.
pub fn has_taint(node: &Value, key: &str) -> bool {
    let all = node.pointer("/spec/taints").and_then(Value::as_array);
    all.into_iter()
        .flatten()
        .any(|taint| text(taint, "/key") == key)
}

/// The status of a Node's condition.
pub fn condition<'a>(node: &'a Value, type_: &str) -> &'a str {
    let all = node.pointer("/status/conditions").and_then(Value::as_array);
    let found = all
        .into_iter()
        .flatten()
        .find(|condition| text(condition, "/type") == type_);
    found
        .map(|found| text(found, "/status"))
        .unwrap_or_default()
}

/// A Node as its kubelet registers it, with a range of pod addresses if somebody gave it one.
pub fn node(name: &str, range: Option<&str>) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "example.com/pool": "a" },
            "annotations": { "example.com/note": "kept" },
        },
        "spec": { "taints": [
            { "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" },
            { "key": "example.com/quiet", "effect": "PreferNoSchedule" },
        ] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let spec = node.pointer_mut("/spec").and_then(Value::as_object_mut);
    if let (Some(range), Some(spec)) = (range, spec) {
        spec.insert("podCIDR".to_owned(), json!(range));
        spec.insert("podCIDRs".to_owned(), json!([range]));
    }
    node
}

/// The ports of a Service.
pub fn ports(ports: &[i32]) -> Value {
    let port = |port: &i32| json!({ "name": format!("p{port}"), "port": port, "protocol": "TCP" });
    ports.iter().map(port).collect()
}

/// A Service of type LoadBalancer; with a class it belongs to somebody else, `dual` asks for an
/// address of each family.
pub fn service(name: &str, listens: &[i32], class: Option<&str>, dual: bool) -> Value {
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": { "example.com/team": "a" },
            "annotations": { "example.com/note": "kept" },
        },
        "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": ports(listens) },
    });
    let spec = service.pointer_mut("/spec").and_then(Value::as_object_mut);
    if let (Some(class), Some(spec)) = (class, spec) {
        spec.insert("loadBalancerClass".to_owned(), json!(class));
    }
    let spec = service.pointer_mut("/spec").and_then(Value::as_object_mut);
    if let (true, Some(spec)) = (dual, spec) {
        spec.insert("ipFamilyPolicy".to_owned(), json!("RequireDualStack"));
        spec.insert("ipFamilies".to_owned(), json!(["IPv4", "IPv6"]));
    }
    service
}
