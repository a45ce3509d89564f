//! The status subresource of Services.

use serde_json::{Value, json};

use crate::world::World;

async fn balancer(w: &mut World, name: &str) -> String {
    let all = w.path("services");
    w.post(&all, json!({ "metadata": { "name": name }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } })).await;
    w.path(&format!("services/{name}"))
}

fn ingress(entries: Value) -> Value {
    let mut patch = json!({ "status": { "loadBalancer": {} } });
    patch["status"]["loadBalancer"]["ingress"] = entries;
    patch
}

pub(crate) async fn load_balancer(w: &mut World) {
    let main = balancer(w, "s").await;
    let status = format!("{main}/status");
    w.get(&status).await;
    for entries in [
        json!([{ "hostname": "lb.example.com" }]),
        json!([{ "ip": "198.51.100.7" }]),
        json!([{ "ip": "198.51.100.7", "ipMode": "Proxy" }]),
        json!([{ "ip": "2001:db8::1", "hostname": "lb.example.com" }]),
        json!([{ "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "TCP" }] }]),
        json!([{ "ip": "198.51.100.7" }, { "ip": "198.51.100.8" }]),
        json!([]),
        json!([{ "hostname": "again.example.com" }]),
        json!(null),
    ] {
        w.patch("merge", &status, ingress(entries.clone())).await;
        w.patch("strategic-merge", &status, ingress(entries)).await;
    }
    w.patch("strategic-merge", &status, json!({
        "metadata": { "finalizers": ["service.kubernetes.io/load-balancer-cleanup"], "labels": { "l": "1" }, "annotations": { "a": "1" } },
        "spec": { "selector": { "changed": "no" }, "ports": [{ "port": 99 }] },
        "status": { "loadBalancer": { "ingress": [{ "hostname": "one.example.com" }] } },
    }))
    .await;
    w.patch(
        "merge",
        &main,
        ingress(json!([{ "hostname": "ignored.example.com" }])),
    )
    .await;
    let mut object = w.get(&main).await.body;
    object["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "198.51.100.9" }] } });
    object["spec"]["selector"] = json!({ "put": "main" });
    let put = w.put(&main, object).await;
    let mut object = put.body;
    object["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "198.51.100.9" }] } });
    object["spec"]["selector"] = json!({ "put": "status" });
    w.put(&status, object).await;
    w.patch("merge", &status, json!({ "status": {} })).await;
    w.patch("merge", &status, json!({ "status": null })).await;
    w.patch(
        "merge",
        &status,
        ingress(json!([{ "hostname": "cleared.example.com" }])),
    )
    .await;
    w.patch("merge", &main, json!({ "spec": { "type": "NodePort" } }))
        .await;
    w.patch(
        "merge",
        &status,
        ingress(json!([{ "hostname": "wrong-type.example.com" }])),
    )
    .await;
    w.patch(
        "merge",
        &main,
        json!({ "spec": { "type": "LoadBalancer" } }),
    )
    .await;
    w.delete(&main).await;
    w.patch(
        "merge",
        &main,
        json!({ "metadata": { "finalizers": null } }),
    )
    .await;
    w.patch("merge", &status, ingress(json!([]))).await;
}

pub(crate) async fn invalid(w: &mut World) {
    let status = format!("{}/status", balancer(w, "s").await);
    for entries in [
        json!([{ "ip": "nonsense" }]),
        json!([{ "ip": "" }]),
        json!([{}]),
        json!([{ "hostname": "Bad Host!" }]),
        json!([{ "hostname": "198.51.100.7" }]),
        json!([{ "hostname": "lb.example.com", "ipMode": "VIP" }]),
        json!([{ "ip": "198.51.100.7", "ipMode": "Nonsense" }]),
        json!([{ "hostname": "lb.example.com", "ports": [{ "port": 0, "protocol": "TCP" }] }]),
        json!([{ "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "HTTP" }] }]),
        json!([{ "hostname": "lb.example.com", "ports": [{ "port": 80, "protocol": "TCP", "error": "bad error" }] }]),
        json!("text"),
        json!([1]),
    ] {
        w.patch("merge", &status, ingress(entries)).await;
    }
}

pub(crate) async fn conditions(w: &mut World) {
    let status = format!("{}/status", balancer(w, "s").await);
    let condition = |kind: &str, state: &str| {
        json!({ "type": kind, "status": state, "reason": "Because", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z" })
    };
    for conditions in [
        json!([condition("A", "True")]),
        json!([condition("B", "False")]),
        json!([condition("A", "False")]),
        json!([{ "type": "A", "$patch": "delete" }]),
        json!([]),
        json!([condition("A", "Perhaps")]),
    ] {
        w.patch(
            "strategic-merge",
            &status,
            json!({ "status": { "conditions": conditions } }),
        )
        .await;
    }
    w.patch(
        "merge",
        &status,
        json!({ "status": { "conditions": [condition("A", "True"), condition("A", "True")] } }),
    )
    .await;
    w.patch(
        "merge",
        &w.path("services/s"),
        json!({ "spec": { "type": "ClusterIP" } }),
    )
    .await;
}
