//! Events of both groups.

use serde_json::{Value, json};

use crate::world::World;

fn event(w: &World, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": w.namespace },
        "involvedObject": { "kind": "Service", "namespace": w.namespace, "name": "web", "uid": "44444444-4444-4444-4444-444444444444",
            "apiVersion": "v1", "resourceVersion": "7" },
        "reason": "EnsuringLoadBalancer", "message": "Ensuring load balancer", "type": "Normal", "count": 1,
        "source": { "component": "service-controller" }, "reportingComponent": "service-controller", "reportingInstance": "",
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
    })
}

fn newer(w: &World, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": w.namespace },
        "eventTime": "2026-01-02T03:04:05.000000Z", "regarding": { "kind": "Service", "namespace": w.namespace, "name": "web" },
        "reason": "Synced", "action": "Sync", "note": "All is well", "type": "Normal",
        "reportingController": "example.com/ccm", "reportingInstance": "ccm-1",
    })
}

pub(crate) async fn core(w: &mut World) {
    let all = w.path("events");
    let e = w.path("events/web.1");
    let body = event(w, "web.1");
    w.post(&all, body.clone()).await;
    w.post(&all, body).await;
    w.patch(
        "strategic-merge",
        &e,
        json!({ "count": 2, "lastTimestamp": "2026-01-02T03:05:05Z", "message": "again" }),
    )
    .await;
    w.patch("merge", &e, json!({ "count": 3 })).await;
    w.patch(
        "strategic-merge",
        &w.path("events/none"),
        json!({ "count": 2 }),
    )
    .await;
    let mut whole = w.get(&e).await.body;
    whole["count"] = json!(4);
    w.put(&e, whole).await;
    w.put(&w.path("events/by-put"), event(w, "by-put")).await;
    for selector in [
        "involvedObject.name%3Dweb",
        "involvedObject.kind%3DNode",
        "reason%3DEnsuringLoadBalancer",
        "type%3DWarning",
        "involvedObject.uid%3D44444444-4444-4444-4444-444444444444,involvedObject.kind%3DService",
        "source%3Dservice-controller",
        "message%3Dx",
    ] {
        w.get(&format!("{all}?fieldSelector={selector}")).await;
    }
    // A node is in no namespace: its events are in "default".
    let mut about_node = event(w, "node.1");
    about_node["metadata"]["namespace"] = json!("default");
    about_node["involvedObject"] = json!({ "kind": "Node", "name": "n", "uid": "n" });
    w.post("/api/v1/namespaces/default/events", about_node.clone())
        .await;
    about_node["metadata"] = json!({ "name": "node.2", "namespace": w.namespace });
    w.post(&all, about_node).await;
    w.delete(&e).await;
    w.delete("/api/v1/namespaces/default/events/node.1").await;
}

pub(crate) async fn newer_group(w: &mut World) {
    let all = w.group_path("events.k8s.io/v1", "events");
    let e = w.group_path("events.k8s.io/v1", "events/web.2");
    w.post(&all, newer(w, "web.2")).await;
    w.get(&e).await;
    w.get(&w.path("events/web.2")).await;
    w.post(&w.path("events"), event(w, "web.3")).await;
    w.get(&w.group_path("events.k8s.io/v1", "events/web.3"))
        .await;
    w.get(&all).await;
    let series = json!({ "count": 2, "lastObservedTime": "2026-01-02T03:06:05.000000Z" });
    w.patch("strategic-merge", &e, json!({ "series": series }))
        .await;
    w.patch(
        "merge",
        &e,
        json!({ "series": { "count": 3, "lastObservedTime": "2026-01-02T03:07:05.000000Z" } }),
    )
    .await;
    w.patch("merge", &e, json!({ "note": "changed" })).await;
    w.patch("merge", &e, json!({ "reason": "changed", "action": "x" }))
        .await;
    w.get(&format!("{all}?fieldSelector=regarding.name%3Dweb"))
        .await;
    w.get(&format!("{all}?fieldSelector=reason%3DSynced")).await;
    w.get(&format!("{all}?fieldSelector=involvedObject.name%3Dweb"))
        .await;
    w.delete(&e).await;
}

pub(crate) async fn invalid(w: &mut World) {
    let core = w.path("events");
    let group = w.group_path("events.k8s.io/v1", "events");
    for (index, change) in [
        json!({ "involvedObject": { "namespace": "elsewhere" } }),
        json!({ "involvedObject": { "namespace": null, "kind": "Node" } }),
        json!({ "involvedObject": null }),
        json!({ "reason": "" }),
        json!({ "type": "Nonsense" }),
        json!({ "message": "x".repeat(2000) }),
        json!({ "count": "text" }),
        json!({ "eventTime": "2026-01-02T03:04:05.000000Z" }),
        json!({ "eventTime": "2026-01-02T03:04:05.000000Z", "reportingInstance": "i", "action": "a" }),
        json!({ "eventTime": "nonsense" }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = event(w, &format!("core.{index}"));
        merge(&mut body, &change);
        w.post(&core, body).await;
    }
    for (index, change) in [
        json!({ "eventTime": null }),
        json!({ "reason": "" }),
        json!({ "action": "" }),
        json!({ "type": "" }),
        json!({ "type": "Nonsense" }),
        json!({ "reportingController": "" }),
        json!({ "reportingController": "not qualified!" }),
        json!({ "reportingInstance": "" }),
        json!({ "reportingInstance": "x".repeat(129) }),
        json!({ "note": "x".repeat(1025) }),
        json!({ "regarding": { "namespace": "elsewhere" } }),
        json!({ "deprecatedCount": 2 }),
        json!({ "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z" }),
        json!({ "series": { "count": 1, "lastObservedTime": "2026-01-02T03:06:05.000000Z" } }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = newer(w, &format!("newer.{index}"));
        merge(&mut body, &change);
        w.post(&group, body).await;
    }
}

fn merge(body: &mut Value, change: &Value) {
    match (body.as_object_mut(), change.as_object()) {
        (Some(map), Some(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    map.remove(key);
                } else {
                    merge(map.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        _ => *body = change.clone(),
    }
}
