//! Services: defaults, types, allocation.

use serde_json::{Value, json};

use crate::world::World;

async fn create(w: &mut World, name: &str, spec: Value) {
    let all = w.path("services");
    w.post(&all, json!({ "metadata": { "name": name }, "spec": spec }))
        .await;
}

async fn change(w: &mut World, name: &str, specs: &[Value]) {
    let path = w.path(&format!("services/{name}"));
    for spec in specs {
        w.patch("merge", &path, json!({ "spec": spec })).await;
    }
}

pub(crate) async fn defaults(w: &mut World) {
    let port = json!([{ "port": 80 }]);
    for (name, spec) in [
        ("plain", json!({ "ports": port })),
        ("node-port", json!({ "type": "NodePort", "ports": port })),
        ("balancer", json!({ "type": "LoadBalancer", "ports": port })),
        (
            "local",
            json!({ "type": "LoadBalancer", "ports": port, "externalTrafficPolicy": "Local" }),
        ),
        (
            "local-node-port",
            json!({ "type": "NodePort", "ports": port, "externalTrafficPolicy": "Local" }),
        ),
        (
            "no-node-ports",
            json!({ "type": "LoadBalancer", "ports": port, "allocateLoadBalancerNodePorts": false }),
        ),
        (
            "external",
            json!({ "type": "ExternalName", "externalName": "example.com" }),
        ),
        (
            "external-ports",
            json!({ "type": "ExternalName", "externalName": "example.com", "ports": port }),
        ),
        (
            "headless",
            json!({ "clusterIP": "None", "ports": port, "selector": { "a": "b" } }),
        ),
        (
            "headless-no-selector",
            json!({ "clusterIP": "None", "ports": port }),
        ),
        (
            "headless-no-ports",
            json!({ "clusterIP": "None", "selector": { "a": "b" } }),
        ),
        (
            "sticky",
            json!({ "ports": port, "sessionAffinity": "ClientIP" }),
        ),
        (
            "sticky-time",
            json!({ "ports": port, "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } } }),
        ),
        (
            "external-ips",
            json!({ "ports": port, "externalIPs": ["198.51.100.7"] }),
        ),
        (
            "named-target",
            json!({ "ports": [{ "port": 80, "targetPort": "http" }] }),
        ),
        (
            "two-ports",
            json!({ "ports": [{ "name": "a", "port": 53, "protocol": "UDP" }, { "name": "b", "port": 53, "protocol": "TCP" }] }),
        ),
        (
            "app-protocol",
            json!({ "ports": [{ "port": 80, "appProtocol": "http" }] }),
        ),
        (
            "ranges",
            json!({ "type": "LoadBalancer", "ports": port, "loadBalancerSourceRanges": ["10.0.0.0/8", " 192.0.2.0/24"] }),
        ),
        (
            "balancer-ip",
            json!({ "type": "LoadBalancer", "ports": port, "loadBalancerIP": "198.51.100.8" }),
        ),
        (
            "class",
            json!({ "type": "LoadBalancer", "ports": port, "loadBalancerClass": "example.com/lb" }),
        ),
        (
            "not-ready",
            json!({ "ports": port, "publishNotReadyAddresses": true }),
        ),
        (
            "distribution",
            json!({ "ports": port, "trafficDistribution": "PreferClose" }),
        ),
        (
            "empty-fields",
            json!({ "type": "", "sessionAffinity": "", "externalName": "", "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 0, "nodePort": 0 }] }),
        ),
    ] {
        create(w, name, spec).await;
    }
    w.get(&w.path("services")).await;
}

pub(crate) async fn types(w: &mut World) {
    create(
        w,
        "s",
        json!({ "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }] }),
    )
    .await;
    change(w, "s", &[
        json!({ "type": "NodePort" }),
        json!({ "type": "LoadBalancer" }),
        json!({ "externalTrafficPolicy": "Local" }),
        json!({ "externalTrafficPolicy": "Cluster" }),
        json!({ "externalTrafficPolicy": "Local", "healthCheckNodePort": 32001 }),
        json!({ "healthCheckNodePort": 32002 }),
        json!({ "externalTrafficPolicy": null }),
        json!({ "externalTrafficPolicy": "Local" }),
        json!({ "allocateLoadBalancerNodePorts": false }),
        json!({ "ports": [{ "name": "a", "port": 80, "nodePort": 0 }, { "name": "b", "port": 81, "nodePort": 0 }] }),
        json!({ "allocateLoadBalancerNodePorts": true }),
        json!({ "allocateLoadBalancerNodePorts": null }),
        json!({ "type": "ClusterIP" }),
        json!({ "type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"], "loadBalancerIP": "198.51.100.9" }),
        json!({ "type": "ClusterIP" }),
        json!({ "loadBalancerSourceRanges": null, "loadBalancerIP": null }),
        json!({ "type": "ExternalName", "externalName": "example.com" }),
        json!({ "type": "ClusterIP", "externalName": null }),
        json!({ "type": "ExternalName", "externalName": "example.com", "clusterIP": "", "clusterIPs": null }),
        json!({ "type": "LoadBalancer" }),
        json!({ "type": null }),
        json!({ "type": "Nonsense" }),
        json!({ "sessionAffinity": "ClientIP" }),
        json!({ "sessionAffinity": "None" }),
        json!({ "internalTrafficPolicy": "Local" }),
        json!({ "internalTrafficPolicy": null }),
        json!({ "publishNotReadyAddresses": true, "selector": { "a": "b" } }),
        json!({ "ports": null }),
    ])
    .await;
}

pub(crate) async fn allocation(w: &mut World) {
    let port = |node_port: u32| json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": node_port }] });
    create(w, "given", port(30080)).await;
    create(w, "taken", port(30080)).await;
    create(w, "outside", port(80)).await;
    create(
        w,
        "given-ip",
        json!({ "clusterIP": "10.96.7.7", "ports": [{ "port": 80 }] }),
    )
    .await;
    create(
        w,
        "taken-ip",
        json!({ "clusterIP": "10.96.7.7", "ports": [{ "port": 80 }] }),
    )
    .await;
    create(
        w,
        "outside-ip",
        json!({ "clusterIP": "10.200.0.1", "ports": [{ "port": 80 }] }),
    )
    .await;
    create(
        w,
        "bad-ip",
        json!({ "clusterIP": "nonsense", "ports": [{ "port": 80 }] }),
    )
    .await;
    create(
        w,
        "mismatch",
        json!({ "clusterIP": "10.96.7.8", "clusterIPs": ["10.96.7.9"], "ports": [{ "port": 80 }] }),
    )
    .await;
    create(w, "both-protocols", json!({ "type": "NodePort", "ports": [
        { "name": "t", "port": 53, "protocol": "TCP", "nodePort": 30053 }, { "name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053 }] })).await;
    change(
        w,
        "given-ip",
        &[
            json!({ "clusterIP": "10.96.7.8" }),
            json!({ "clusterIP": "10.96.7.8", "clusterIPs": ["10.96.7.8"] }),
            json!({ "clusterIP": "None" }),
        ],
    )
    .await;
    change(
        w,
        "given",
        &[
            json!({ "ports": [{ "port": 81 }] }),
            json!({ "ports": [{ "port": 81, "nodePort": 30082 }] }),
            json!({ "ports": [{ "name": "x", "port": 81 }] }),
            json!({ "ports": [{ "name": "x", "port": 81 }, { "name": "y", "port": 82 }] }),
            json!({ "ports": [{ "name": "y", "port": 82 }] }),
            json!({ "ports": [{ "name": "y", "port": 82, "nodePort": 30053 }] }),
        ],
    )
    .await;
    w.delete(&w.path("services/both-protocols")).await;
    create(w, "freed", port(30053)).await;
    create(w, "range", json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30054, "ports": [{ "port": 80 }] })).await;
    create(w, "range-taken", json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30054, "ports": [{ "port": 80 }] })).await;
    let mut whole = w.get(&w.path("services/range")).await.body;
    whole["spec"] = json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{ "port": 80 }] });
    w.put(&w.path("services/range"), whole).await;
    change(
        w,
        "given-ip",
        &[
            json!({ "clusterIP": null, "clusterIPs": null }),
            json!({ "clusterIP": "" }),
        ],
    )
    .await;
}

pub(crate) async fn families(w: &mut World) {
    let ports = json!([{ "port": 80 }]);
    for (name, spec) in [
        ("single", json!({ "ipFamilyPolicy": "SingleStack" })),
        ("single-six", json!({ "ipFamilies": ["IPv6"] })),
        ("prefer", json!({ "ipFamilyPolicy": "PreferDualStack" })),
        ("require", json!({ "ipFamilyPolicy": "RequireDualStack" })),
        (
            "six-first",
            json!({ "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"] }),
        ),
        ("both-no-policy", json!({ "ipFamilies": ["IPv4", "IPv6"] })),
        (
            "single-two",
            json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"] }),
        ),
        ("twice", json!({ "ipFamilies": ["IPv4", "IPv4"] })),
        ("nonsense", json!({ "ipFamilies": ["IPv5"] })),
        ("bad-policy", json!({ "ipFamilyPolicy": "Both" })),
        (
            "headless-dual",
            json!({ "clusterIP": "None", "ipFamilyPolicy": "PreferDualStack", "selector": { "a": "b" } }),
        ),
        ("headless-bare", json!({ "clusterIP": "None" })),
        (
            "balancer-dual",
            json!({ "type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack" }),
        ),
        (
            "external",
            json!({ "type": "ExternalName", "externalName": "e.com", "ipFamilyPolicy": "SingleStack" }),
        ),
    ] {
        let mut spec = spec;
        spec["ports"] = ports.clone();
        create(w, name, spec).await;
    }
    change(
        w,
        "single",
        &[
            json!({ "ipFamilyPolicy": "PreferDualStack" }),
            json!({ "ipFamilyPolicy": "SingleStack" }),
            json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"] }),
            json!({ "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": null }),
            json!({ "ipFamilies": ["IPv6"] }),
        ],
    )
    .await;
}

pub(crate) async fn class(w: &mut World) {
    let ports = json!([{ "port": 80 }]);
    create(
        w,
        "s",
        json!({ "type": "LoadBalancer", "ports": ports, "loadBalancerClass": "example.com/a" }),
    )
    .await;
    create(
        w,
        "bad",
        json!({ "type": "LoadBalancer", "ports": ports, "loadBalancerClass": "not a class" }),
    )
    .await;
    create(
        w,
        "other-type",
        json!({ "ports": ports, "loadBalancerClass": "example.com/a" }),
    )
    .await;
    create(w, "late", json!({ "type": "LoadBalancer", "ports": ports })).await;
    create(w, "converted", json!({ "ports": ports })).await;
    change(
        w,
        "s",
        &[
            json!({ "loadBalancerClass": "example.com/b" }),
            json!({ "loadBalancerClass": null }),
            json!({ "loadBalancerClass": "" }),
            json!({ "type": "ClusterIP" }),
            json!({ "type": "LoadBalancer", "loadBalancerClass": "example.com/b" }),
            json!({ "type": "NodePort", "loadBalancerClass": "example.com/c" }),
            json!({ "type": "NodePort", "loadBalancerClass": null }),
            json!({ "loadBalancerClass": "example.com/c" }),
        ],
    )
    .await;
    change(
        w,
        "late",
        &[json!({ "loadBalancerClass": "example.com/a" })],
    )
    .await;
    change(
        w,
        "converted",
        &[json!({ "type": "LoadBalancer", "loadBalancerClass": "service.k8s.aws/nlb" })],
    )
    .await;
}
