//! Services that are not valid.

use serde_json::{Value, json};

use crate::world::World;

async fn refuse(w: &mut World, specs: Vec<Value>) {
    let all = w.path("services");
    for (index, spec) in specs.into_iter().enumerate() {
        w.post(
            &all,
            json!({ "metadata": { "name": format!("s{index}") }, "spec": spec }),
        )
        .await;
    }
}

pub(crate) async fn specs(w: &mut World) {
    let ports = json!([{ "port": 80 }]);
    let balancer = |field: &str, value: Value| {
        let mut spec = json!({ "type": "LoadBalancer", "ports": ports });
        spec[field] = value;
        spec
    };
    refuse(w, vec![
        json!({}),
        json!({ "ports": [] }),
        json!({ "type": "LoadBalancer" }),
        json!({ "type": "Nonsense", "ports": ports }),
        json!({ "type": "ExternalName" }),
        json!({ "type": "ExternalName", "externalName": "bad name!" }),
        json!({ "type": "ExternalName", "externalName": "example.com.", "clusterIP": "10.96.0.9" }),
        json!({ "type": "ExternalName", "externalName": "example.com", "clusterIP": "None" }),
        json!({ "type": "LoadBalancer", "clusterIP": "None", "ports": ports }),
        json!({ "type": "NodePort", "clusterIP": "None", "ports": ports }),
        json!({ "ports": ports, "sessionAffinity": "Nonsense" }),
        json!({ "ports": ports, "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 0 } } }),
        json!({ "ports": ports, "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 90000 } } }),
        json!({ "ports": ports, "sessionAffinity": "None", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 10 } } }),
        json!({ "ports": ports, "selector": { "bad key!": "v" } }),
        json!({ "ports": ports, "selector": { "k": "bad value!" } }),
        json!({ "ports": ports, "externalIPs": ["nonsense"] }),
        json!({ "ports": ports, "externalIPs": ["127.0.0.1"] }),
        json!({ "ports": ports, "externalIPs": ["0.0.0.0"] }),
        json!({ "ports": ports, "externalTrafficPolicy": "Cluster" }),
        json!({ "type": "NodePort", "ports": ports, "externalTrafficPolicy": "Nonsense" }),
        json!({ "ports": ports, "internalTrafficPolicy": "Nonsense" }),
        json!({ "ports": ports, "healthCheckNodePort": 30001 }),
        json!({ "ports": ports, "allocateLoadBalancerNodePorts": true }),
        json!({ "ports": ports, "loadBalancerSourceRanges": ["10.0.0.0/8"] }),
        json!({ "ports": ports, "loadBalancerIP": "198.51.100.1" }),
        json!({ "ports": ports, "trafficDistribution": "Nonsense" }),
        balancer("loadBalancerSourceRanges", json!(["nonsense"])),
        balancer("loadBalancerSourceRanges", json!(["10.0.0.0"])),
        balancer("loadBalancerSourceRanges", json!(["10.0.0.0/33"])),
        balancer("loadBalancerSourceRanges", json!(["10.0.0.5/8"])),
        balancer("loadBalancerSourceRanges", json!([""])),
        balancer("healthCheckNodePort", json!(30002)),
        balancer("healthCheckNodePort", json!(-1)),
        balancer("externalTrafficPolicy", json!("")),
        json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 10, "ports": ports }),
    ])
    .await;
    let all = w.path("services");
    w.post(
        &all,
        json!({ "metadata": { "name": "annotated", "annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "nonsense" } },
        "spec": { "type": "LoadBalancer", "ports": ports } }),
    )
    .await;
    w.post(
        &all,
        json!({ "metadata": { "name": "annotated", "annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 192.0.2.0/24" } },
        "spec": { "type": "LoadBalancer", "ports": ports } }),
    )
    .await;
    w.post(
        &all,
        json!({ "metadata": { "name": "annotated-plain", "annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8" } },
        "spec": { "ports": ports } }),
    )
    .await;
    w.post(&all, json!({ "metadata": { "name": "Bad_Name" }, "spec": { "type": "Nonsense", "ports": [{ "port": 0 }] } })).await;
}

pub(crate) async fn ports(w: &mut World) {
    let one = |port: Value| json!({ "ports": [port] });
    refuse(w, vec![
        one(json!({})),
        one(json!({ "port": 0 })),
        one(json!({ "port": -1 })),
        one(json!({ "port": 65536 })),
        one(json!({ "port": 80, "protocol": "HTTP" })),
        one(json!({ "port": 80, "protocol": "" })),
        one(json!({ "port": 80, "protocol": "tcp" })),
        one(json!({ "port": 80, "protocol": "SCTP" })),
        one(json!({ "port": 80, "name": "Bad_Name" })),
        one(json!({ "port": 80, "name": "x".repeat(64) })),
        one(json!({ "port": 80, "targetPort": 70000 })),
        one(json!({ "port": 80, "targetPort": "Bad_Name" })),
        one(json!({ "port": 80, "targetPort": "way-too-long-port-name" })),
        one(json!({ "port": 80, "targetPort": "123" })),
        one(json!({ "port": 80, "targetPort": "" })),
        one(json!({ "port": 80, "nodePort": 30000 })),
        one(json!({ "port": 80, "appProtocol": "not qualified!" })),
        json!({ "ports": [{ "port": 80 }, { "port": 81 }] }),
        json!({ "ports": [{ "name": "a", "port": 80 }, { "name": "a", "port": 81 }] }),
        json!({ "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 80 }] }),
        json!({ "ports": [{ "name": "a", "port": 80, "protocol": "TCP" }, { "name": "b", "port": 80, "protocol": "UDP" }] }),
        json!({ "type": "NodePort", "ports": [{ "name": "a", "port": 80, "nodePort": 30099 }, { "name": "b", "port": 81, "nodePort": 30099 }] }),
        json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": -1 }] }),
        json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": 70000 }] }),
        json!({ "type": "LoadBalancer", "ports": [{ "name": "a", "port": 80, "protocol": "TCP" }, { "name": "b", "port": 81, "protocol": "UDP" }] }),
        json!({ "type": "LoadBalancer", "ports": [{ "port": 10250 }] }),
    ])
    .await;
}

pub(crate) async fn types(w: &mut World) {
    refuse(
        w,
        vec![
            json!({ "ports": "text" }),
            json!({ "ports": [{ "port": "80" }] }),
            json!({ "ports": [{ "port": 80.5 }] }),
            json!({ "ports": [{ "port": 80, "targetPort": true }] }),
            json!({ "ports": [{ "port": 80, "nodePort": "30000" }] }),
            json!({ "ports": [{ "port": 80 }], "selector": "text" }),
            json!({ "ports": [{ "port": 80 }], "selector": { "a": 1 } }),
            json!({ "ports": [{ "port": 80 }], "type": 7 }),
            json!({ "ports": [{ "port": 80 }], "publishNotReadyAddresses": "yes" }),
            json!({ "ports": [{ "port": 80 }], "externalIPs": "198.51.100.7" }),
            json!({ "ports": [{ "port": 80 }], "loadBalancerSourceRanges": [1] }),
            json!("text"),
        ],
    )
    .await;
    let nodes = "/api/v1/nodes";
    for body in [
        json!({ "metadata": { "name": 7 } }),
        json!({ "metadata": "text" }),
        json!({ "metadata": { "name": "a", "labels": { "k": 1 } } }),
        json!({ "metadata": { "name": "a", "labels": [] } }),
        json!({ "metadata": { "name": "a", "finalizers": "x" } }),
        json!({ "metadata": { "name": "a" }, "spec": { "taints": {} } }),
        json!({ "metadata": { "name": "a" }, "spec": { "taints": [{ "key": 1, "effect": "NoSchedule" }] } }),
        json!({ "metadata": { "name": "a" }, "spec": { "unschedulable": "no" } }),
        json!({ "metadata": { "name": "a" }, "spec": { "providerID": 1 } }),
        json!({ "metadata": { "name": "a" }, "status": { "addresses": [{ "type": 1, "address": "a" }] } }),
    ] {
        w.post(nodes, body).await;
    }
    w.post(nodes, json!({ "metadata": { "name": "n" } })).await;
    for (kind, patch) in [
        ("merge", json!({ "spec": { "taints": "x" } })),
        ("strategic-merge", json!({ "spec": { "taints": "x" } })),
        (
            "strategic-merge",
            json!({ "metadata": { "labels": { "k": 1 } } }),
        ),
        ("strategic-merge", json!({ "metadata": "x" })),
        (
            "merge",
            json!({ "metadata": { "annotations": { "k": true } } }),
        ),
        ("strategic-merge", json!({ "spec": { "noSuchField": 1 } })),
        ("merge", json!({ "spec": { "noSuchField": 1 } })),
    ] {
        w.patch(kind, "/api/v1/nodes/n", patch).await;
    }
}
