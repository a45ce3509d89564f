//! Nodes.

use serde_json::json;

use crate::world::World;

const NODES: &str = "/api/v1/nodes";
const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

pub(crate) async fn main(w: &mut World) {
    let a = "/api/v1/nodes/ip-10-0-0-1.ec2.internal";
    w.post(NODES, json!({
        "metadata": { "name": "ip-10-0-0-1.ec2.internal", "labels": { "kubernetes.io/hostname": "h" } },
        "spec": { "taints": [{ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }] },
        "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }], "capacity": { "cpu": "2" } },
    }))
    .await;
    w.post(
        NODES,
        json!({ "metadata": { "name": "ip-10-0-0-1.ec2.internal" } }),
    )
    .await;
    let mut node = w.get(a).await.body;
    node["spec"]["providerID"] = json!("aws:///us-west-2a/i-0123456789abcdef0");
    node["status"]["addresses"] = json!([{ "type": "InternalIP", "address": "10.9.9.9" }]);
    w.put(a, node).await;
    for spec in [
        json!({ "providerID": "aws:///us-west-2a/i-other" }),
        json!({ "providerID": "" }),
        json!({ "providerID": null }),
        json!({ "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"] }),
        json!({ "podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"] }),
        json!({ "podCIDRs": ["nonsense"] }),
        json!({ "unschedulable": true }),
        json!({ "unschedulable": false }),
        json!({ "taints": [{ "key": "a", "effect": "NoSuchEffect" }] }),
        json!({ "taints": [{ "key": "a" }] }),
        json!({ "taints": [{ "key": "bad key", "effect": "NoExecute" }] }),
        json!({ "taints": [{ "key": "a", "value": "bad value!", "effect": "NoExecute" }] }),
        json!({ "taints": [{ "effect": "NoExecute" }] }),
        json!({ "taints": [{ "key": "a", "effect": "NoExecute" }, { "key": "a", "effect": "NoExecute" }] }),
        json!({ "taints": [{ "key": "a", "value": "", "effect": "NoExecute" }] }),
        json!({ "taints": [] }),
        json!({ "taints": null }),
    ] {
        w.patch("merge", a, json!({ "spec": spec })).await;
    }
    w.delete(a).await;
    w.get(a).await;
    w.delete(a).await;
    w.put(
        a,
        json!({ "metadata": { "name": "ip-10-0-0-1.ec2.internal" } }),
    )
    .await;
    w.post(NODES, json!({ "metadata": { "name": "b" }, "spec": { "providerID": "aws:///us-west-2a/i-1", "unschedulable": false } })).await;
    w.post(
        NODES,
        json!({ "metadata": { "name": "d" }, "spec": { "taints": [
        { "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] } }),
    )
    .await;
    w.post(
        NODES,
        json!({ "metadata": { "name": "c" }, "spec": { "podCIDR": "10.1.0.0/24" } }),
    )
    .await;
}

pub(crate) async fn status(w: &mut World) {
    let (main, status) = ("/api/v1/nodes/a", "/api/v1/nodes/a/status");
    w.post(
        NODES,
        json!({ "metadata": { "name": "a", "labels": { "keep": "yes" } } }),
    )
    .await;
    w.get(status).await;
    w.patch("strategic-merge", status, json!({
        "metadata": { "labels": { "new": "label" }, "annotations": { "new": "annotation" } },
        "spec": { "unschedulable": true, "providerID": "aws:///us-west-2a/i-1" },
        "status": {
            "capacity": { "cpu": "4" },
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "Hostname", "address": "a" }],
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
        },
    }))
    .await;
    let mut node = w.get(main).await.body;
    node["status"]["conditions"][0]["status"] = json!("Unknown");
    node["spec"]["taints"] = json!([]);
    w.put(status, node.clone()).await;
    w.put(status, node).await;
    for addresses in [
        json!([{ "type": "InternalIP", "address": "1" }, { "type": "InternalIP", "address": "2" }]),
        json!([{ "type": "InternalIP", "address": "1" }, { "type": "InternalIP", "address": "1" }]),
        json!([]),
    ] {
        w.patch(
            "merge",
            status,
            json!({ "status": { "addresses": addresses } }),
        )
        .await;
    }
    w.patch(
        "merge",
        status,
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
    )
    .await;
    w.patch(
        "merge",
        main,
        json!({ "status": { "phase": "ignored" }, "metadata": { "labels": { "keep": null } } }),
    )
    .await;
    w.patch(
        "merge",
        "/api/v1/nodes/none/status",
        json!({ "status": {} }),
    )
    .await;
    w.get("/api/v1/nodes/none/status").await;
    w.get("/api/v1/nodes/a/scale").await;
}

pub(crate) async fn taints(w: &mut World) {
    let a = "/api/v1/nodes/a";
    let cloud = json!({ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" });
    let shutdown =
        json!({ "key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule" });
    w.post(
        NODES,
        json!({ "metadata": { "name": "a" }, "spec": { "taints": [cloud, shutdown] } }),
    )
    .await;
    let version = w.get(a).await.version();
    // As the manager removes it: tests the version, replaces the list as a whole.
    w.patch(
        "strategic-merge",
        a,
        json!({
            "metadata": { "resourceVersion": version },
            "spec": { "taints": [shutdown] },
        }),
    )
    .await;
    w.patch(
        "strategic-merge",
        a,
        json!({
        "metadata": { "resourceVersion": version }, "spec": { "taints": [] } }),
    )
    .await;
    w.patch(
        "strategic-merge",
        a,
        json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } }),
    )
    .await;
    w.patch("strategic-merge", a, json!({ "spec": { "taints": [{ "$patch": "replace" }, { "key": "c", "effect": "NoExecute" }] } })).await;
    w.patch("strategic-merge", a, json!({ "spec": { "taints": [{ "$patch": "delete", "key": "c", "effect": "NoExecute" }] } })).await;
    w.patch("strategic-merge", a, json!({ "spec": { "taints": null } }))
        .await;
    w.patch("merge", a, json!({ "spec": { "taints": [cloud] } }))
        .await;
    w.patch(
        "json",
        a,
        json!([
            { "op": "test", "path": "/spec/taints/0/key", "value": CLOUD_TAINT },
            { "op": "remove", "path": "/spec/taints/0" },
        ]),
    )
    .await;
    w.patch(
        "json",
        a,
        json!([{ "op": "test", "path": "/spec/taints/0/key", "value": CLOUD_TAINT }]),
    )
    .await;
}
