//! What holds for objects of every kind.

use http::Method;
use serde_json::json;

use crate::world::World;

fn map(name: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name }, "data": { "k": "1" } })
}

pub(crate) async fn conflicts(w: &mut World) {
    let all = w.path("configmaps");
    let c = w.path("configmaps/c");
    let first = w.post(&all, map("c")).await;
    w.patch("merge", &c, json!({ "data": { "k": "2" } })).await;
    w.put(&c, first.body.clone()).await;
    let mut unconditional = first.body.clone();
    unconditional["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    unconditional["data"]["k"] = json!("3");
    w.put(&c, unconditional).await;
    let other = "22222222-2222-2222-2222-222222222222";
    let stale = json!({ "resourceVersion": first.version() });
    for kind in ["merge", "strategic-merge"] {
        w.patch(kind, &c, json!({ "metadata": stale, "data": { "k": "4" } }))
            .await;
        w.patch(
            kind,
            &c,
            json!({ "metadata": { "uid": other }, "data": { "k": "4" } }),
        )
        .await;
        let current = w.get(&c).await;
        w.patch(kind, &c, json!({ "metadata": { "uid": current.uid(), "resourceVersion": current.version() }, "data": { "k": kind } })).await;
        w.patch(kind, &c, json!({ "metadata": { "resourceVersion": "0" } }))
            .await;
        w.patch(
            kind,
            &c,
            json!({ "metadata": { "resourceVersion": "nonsense" } }),
        )
        .await;
    }
    let mut foreign = w.get(&c).await.body;
    foreign["metadata"]["uid"] = json!(other);
    w.put(&c, foreign.clone()).await;
    foreign["metadata"]["name"] = json!("d");
    w.put(&c, foreign.clone()).await;
    foreign["metadata"]["name"] = json!("c");
    foreign["metadata"]["namespace"] = json!("elsewhere");
    w.put(&c, foreign).await;
    w.post(&all, first.body.clone()).await;
    let mut fresh = first.body;
    fresh["metadata"]["name"] = json!("fresh");
    w.post(&all, fresh).await;
    w.post(
        &all,
        json!({ "metadata": { "name": "e", "namespace": "elsewhere" } }),
    )
    .await;
    let services = w.path("services");
    let s = w
        .post(
            &services,
            json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } }),
        )
        .await;
    let path = w.path("services/s");
    w.patch(
        "merge",
        &path,
        json!({ "metadata": { "labels": { "a": "b" } } }),
    )
    .await;
    for kind in ["merge", "strategic-merge"] {
        let status = w.path("services/s/status");
        let ingress = json!({ "loadBalancer": { "ingress": [{ "hostname": "h" }] } });
        w.patch(
            kind,
            &status,
            json!({ "metadata": { "resourceVersion": s.version() }, "status": ingress }),
        )
        .await;
        w.patch(
            kind,
            &status,
            json!({ "metadata": { "uid": other }, "status": ingress }),
        )
        .await;
    }
}

pub(crate) async fn no_change(w: &mut World) {
    let all = w.path("services");
    let s = w.path("services/s");
    w.post(&all, json!({ "metadata": { "name": "s", "labels": { "a": "b" } }, "spec": { "ports": [{ "port": 80 }] } })).await;
    let same = w.get(&s).await;
    w.put(&s, same.body).await;
    for kind in ["merge", "strategic-merge"] {
        w.patch(
            kind,
            &s,
            json!({ "metadata": { "labels": { "a": "b" }, "annotations": {} } }),
        )
        .await;
        w.patch(
            kind,
            &w.path("services/s/status"),
            json!({ "status": { "loadBalancer": { "ingress": [] } } }),
        )
        .await;
        w.patch(
            kind,
            &s,
            json!({ "metadata": { "finalizers": [] }, "spec": { "externalIPs": [] } }),
        )
        .await;
    }
    w.post("/api/v1/nodes", json!({ "metadata": { "name": "a" } }))
        .await;
    for patch in [
        json!({ "spec": { "providerID": "" } }),
        json!({ "spec": { "unschedulable": false } }),
        json!({ "status": { "addresses": [] } }),
        json!({ "metadata": { "labels": {} } }),
    ] {
        w.patch("merge", "/api/v1/nodes/a", patch.clone()).await;
        w.patch("merge", "/api/v1/nodes/a/status", patch).await;
    }
}

pub(crate) async fn finalizers(w: &mut World) {
    let all = w.path("services");
    let s = w.path("services/s");
    let hold = "service.kubernetes.io/load-balancer-cleanup";
    let service = json!({ "metadata": { "name": "s", "finalizers": [hold] },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    w.post(&all, service.clone()).await;
    w.delete(&s).await;
    w.delete(&s).await;
    w.get(&s).await;
    w.post(&all, service.clone()).await;
    w.patch(
        "merge",
        &s,
        json!({ "metadata": { "finalizers": [hold, "example.com/late"] } }),
    )
    .await;
    w.patch(
        "merge",
        &s,
        json!({ "metadata": { "labels": { "still": "writable" } } }),
    )
    .await;
    w.patch(
        "merge",
        &s,
        json!({ "metadata": { "deletionTimestamp": null } }),
    )
    .await;
    w.patch(
        "strategic-merge",
        &w.path("services/s/status"),
        json!({ "metadata": {
        "$deleteFromPrimitiveList/finalizers": [hold] } }),
    )
    .await;
    w.get(&s).await;
    w.post(&all, service).await;
    w.delete(&s).await;
    w.patch("merge", &s, json!({ "metadata": { "finalizers": null } }))
        .await;
    w.get(&s).await;
    let maps = w.path("configmaps");
    let c = w.path("configmaps/c");
    let mut held = map("c");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    w.post(&maps, held).await;
    w.patch(
        "merge",
        &c,
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    )
    .await;
    w.delete_with(&c, json!({ "propagationPolicy": "Background" }))
        .await;
    let mut object = w.get(&c).await.body;
    object["metadata"]["finalizers"] = json!([]);
    w.put(&c, object).await;
    w.get(&c).await;
    w.post(
        "/api/v1/nodes",
        json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] } }),
    )
    .await;
    w.delete("/api/v1/nodes/a").await;
    w.patch(
        "merge",
        "/api/v1/nodes/a",
        json!({ "metadata": { "finalizers": [] } }),
    )
    .await;
    w.get("/api/v1/nodes/a").await;
    w.post(&maps, map("d")).await;
    w.post(&maps, map("e")).await;
    w.delete_with(
        &w.path("configmaps/d"),
        json!({ "propagationPolicy": "Foreground" }),
    )
    .await;
    w.get(&w.path("configmaps/d")).await;
    w.delete_with(
        &w.path("configmaps/e"),
        json!({ "propagationPolicy": "Orphan" }),
    )
    .await;
    w.get(&w.path("configmaps/e")).await;
}

pub(crate) async fn preconditions(w: &mut World) {
    let nodes = "/api/v1/nodes";
    let a = "/api/v1/nodes/a";
    let first = w.post(nodes, json!({ "metadata": { "name": "a" } })).await;
    w.delete_with(
        a,
        json!({ "preconditions": { "uid": "33333333-3333-3333-3333-333333333333" } }),
    )
    .await;
    w.delete_with(a, json!({ "preconditions": { "resourceVersion": "1" } }))
        .await;
    w.patch(
        "merge",
        a,
        json!({ "metadata": { "labels": { "a": "b" } } }),
    )
    .await;
    w.delete_with(
        a,
        json!({ "preconditions": { "uid": first.uid(), "resourceVersion": first.version() } }),
    )
    .await;
    w.delete_with(a, json!({ "preconditions": { "uid": first.uid() } }))
        .await;
    w.delete_with(a, json!({ "preconditions": { "uid": first.uid() } }))
        .await;
    w.post(nodes, json!({ "metadata": { "name": "a" } })).await;
    w.delete_with(a, json!({ "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "uid": first.uid() } })).await;
    w.delete_with(a, json!({ "dryRun": ["All"] })).await;
    w.get(a).await;
    w.delete_with(a, json!({ "gracePeriodSeconds": 0 })).await;
    w.delete_with(a, json!("nonsense")).await;
    let leases = w.group_path("coordination.k8s.io/v1", "leases");
    let lease = w.group_path("coordination.k8s.io/v1", "leases/l");
    w.post(&leases, json!({ "metadata": { "name": "l" } }))
        .await;
    w.delete_with(
        &lease,
        json!({ "preconditions": { "uid": "33333333-3333-3333-3333-333333333333" } }),
    )
    .await;
    w.delete(&lease).await;
}

pub(crate) async fn generated_and_dry(w: &mut World) {
    let all = w.path("configmaps");
    w.post(&all, json!({ "metadata": { "generateName": "made-" } }))
        .await;
    w.post(&all, json!({ "metadata": { "generateName": "made-" } }))
        .await;
    w.post(
        &all,
        json!({ "metadata": { "generateName": "made-", "name": "given" } }),
    )
    .await;
    w.post(&all, json!({ "metadata": {} })).await;
    w.post(&all, json!({})).await;
    let dry = w.path("configmaps?dryRun=All");
    w.post(&dry, map("dry")).await;
    w.get(&w.path("configmaps/dry")).await;
    w.post(&all, map("wet")).await;
    let wet = w.path("configmaps/wet");
    w.patch(
        "merge",
        &format!("{wet}?dryRun=All"),
        json!({ "data": { "k": "2" } }),
    )
    .await;
    w.delete(&format!("{wet}?dryRun=All")).await;
    w.get(&wet).await;
    w.post(&w.path("configmaps?dryRun=Some"), map("dry")).await;
    w.post(&w.path("services?dryRun=All"), json!({ "metadata": { "name": "s" }, "spec": { "type": "ClusterIP", "ports": [{ "port": 80 }] } })).await;
    w.get(&w.path("services/s")).await;
}

pub(crate) async fn bad_metadata(w: &mut World) {
    let all = w.path("configmaps");
    let long = "x".repeat(300);
    for metadata in [
        json!({ "name": "Upper" }),
        json!({ "name": "under_score" }),
        json!({ "name": "-dash" }),
        json!({ "name": long }),
        json!({ "name": "a", "labels": { "bad key": "v" } }),
        json!({ "name": "a", "labels": { "k": "bad value!" } }),
        json!({ "name": "a", "labels": { "k": "x".repeat(64) } }),
        json!({ "name": "a", "labels": { "Bad.Prefix/k": "v" } }),
        json!({ "name": "a", "labels": { "/k": "v" } }),
        json!({ "name": "a", "labels": { "x/": "v" } }),
        json!({ "name": "a", "labels": { "a/b/c": "v" } }),
        json!({ "name": "a", "annotations": { "bad key": "any value!" } }),
        json!({ "name": "a", "annotations": { "k": "any value!" } }),
        json!({ "name": "b", "finalizers": ["not qualified"] }),
        json!({ "name": "b", "finalizers": ["plain"] }),
        json!({ "name": "b", "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "", "uid": "" }] }),
        json!({ "name": "bad name", "labels": { "k": "bad value!" } }),
    ] {
        w.post(&all, json!({ "metadata": metadata })).await;
    }
    for name in ["1digit", "has.dot", "UPPER", "ok"] {
        w.post(
            &w.path("services"),
            json!({ "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } }),
        )
        .await;
        w.post("/api/v1/nodes", json!({ "metadata": { "name": name } }))
            .await;
    }
}

pub(crate) async fn missing(w: &mut World) {
    for path in [
        "/api/v1/nodes/none",
        "/api/v1/namespaces/none",
        "/api/v1/namespaces/none/services/s",
    ] {
        w.get(path).await;
        w.delete(path).await;
        w.put(
            path,
            json!({ "metadata": { "name": path.rsplit('/').next() } }),
        )
        .await;
    }
    w.get(&w.group_path("coordination.k8s.io/v1", "leases/none"))
        .await;
    w.get(&w.path("services/none/status")).await;
    for path in [
        "/api/v1/unicorns",
        "/api/v1/namespaces/default/nodes",
        "/apis/none.example.com/v1/things",
        "/api/v9/nodes",
        "/api/v1/services/s",
        "/nothing",
        "/api/v1/namespaces/default/services/s/none",
    ] {
        w.get(path).await;
    }
    w.any(Method::POST, "/api/v1/nodes/a", "application/json", "{}")
        .await;
    w.any(Method::PUT, "/api/v1/nodes", "application/json", "{}")
        .await;
    w.any(
        Method::POST,
        "/api/v1/services",
        "application/json",
        r#"{"metadata":{"name":"s"}}"#,
    )
    .await;
    w.any(Method::DELETE, "/api/v1/services", "", "").await;
    w.any(Method::DELETE, "/api/v1/namespaces", "", "").await;
    w.any(Method::DELETE, "/api/v1/nodes/none/status", "", "")
        .await;
    w.get("/api/v1/namespaces/none/services").await;
}

pub(crate) async fn namespaces(w: &mut World) {
    let all = "/api/v1/namespaces";
    w.post(
        all,
        json!({ "metadata": { "name": "extra", "labels": { "a": "b" } } }),
    )
    .await;
    w.post(all, json!({ "metadata": { "name": "extra" } }))
        .await;
    w.post(all, json!({ "metadata": { "name": "has.dot" } }))
        .await;
    w.post("/api/v1/namespaces/extra/configmaps", map("c"))
        .await;
    w.post("/api/v1/namespaces/absent/configmaps", map("c"))
        .await;
    w.post(
        "/api/v1/namespaces/absent/services",
        json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } }),
    )
    .await;
    w.patch("merge", "/api/v1/namespaces/extra", json!({ "metadata": { "labels": { "c": "d" } }, "spec": { "finalizers": [] }, "status": { "phase": "X" } })).await;
    for name in ["default", "kube-system", "kube-public"] {
        w.get(&format!("/api/v1/namespaces/{name}")).await;
        w.delete(&format!("/api/v1/namespaces/{name}")).await;
    }
    w.get("/api/v1/namespaces/extra/status").await;
    w.get("/api/v1/namespaces?labelSelector=a%3Db").await;
}

pub(crate) async fn leases(w: &mut World) {
    let all = w.group_path("coordination.k8s.io/v1", "leases");
    let l = w.group_path("coordination.k8s.io/v1", "leases/l");
    let time = "2026-03-01T10:00:00.000000Z";
    let made = w.post(&all, json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15,
        "acquireTime": time, "renewTime": time, "leaseTransitions": 0 } })).await;
    let mut lease = w.get(&l).await.body;
    lease["spec"]["renewTime"] = json!("2026-03-01T10:00:02.000000Z");
    lease["spec"]["holderIdentity"] = json!("b");
    lease["spec"]["leaseTransitions"] = json!(1);
    w.put(&l, lease.clone()).await;
    w.put(&l, made.body).await;
    lease["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    w.put(&l, lease).await;
    for spec in [
        json!({ "leaseDurationSeconds": 0 }),
        json!({ "leaseDurationSeconds": -1 }),
        json!({ "leaseTransitions": -1 }),
        json!({ "renewTime": "nonsense" }),
        json!({ "holderIdentity": "" }),
        json!({ "holderIdentity": null }),
    ] {
        w.patch("merge", &l, json!({ "spec": spec })).await;
    }
    let new = w.group_path("coordination.k8s.io/v1", "leases/new");
    w.put(
        &new,
        json!({ "metadata": { "name": "new" }, "spec": { "holderIdentity": "a" } }),
    )
    .await;
    w.get(&all).await;
    w.delete(&l).await;
}

pub(crate) async fn others(w: &mut World) {
    for (plural, body) in [
        (
            "configmaps",
            json!({ "metadata": { "name": "x" }, "data": { "a": "b" }, "binaryData": { "c": "AAE=" } }),
        ),
        (
            "secrets",
            json!({ "metadata": { "name": "x" }, "stringData": { "a": "b" }, "data": { "c": "ZA==" } }),
        ),
        ("serviceaccounts", json!({ "metadata": { "name": "x" } })),
        (
            "endpoints",
            json!({ "metadata": { "name": "x" }, "subsets": [{ "addresses": [{ "ip": "10.0.0.1" }], "ports": [{ "port": 80 }] }] }),
        ),
    ] {
        w.post(&w.path(plural), body).await;
        w.get(&w.path(&format!("{plural}/x"))).await;
        w.get(&w.path(&format!("{plural}?fieldSelector=metadata.name%3Dx")))
            .await;
        w.patch(
            "merge",
            &w.path(&format!("{plural}/x")),
            json!({ "metadata": { "labels": { "a": "b" } } }),
        )
        .await;
        w.delete(&w.path(&format!("{plural}/x"))).await;
    }
    w.put(
        &w.path("endpoints/made-by-put"),
        json!({ "metadata": { "name": "made-by-put" } }),
    )
    .await;
    w.put(
        &w.path("configmaps/made-by-put"),
        json!({ "metadata": { "name": "made-by-put" } }),
    )
    .await;
    w.put(
        &w.path("services/made-by-put"),
        json!({ "metadata": { "name": "made-by-put" }, "spec": { "ports": [{ "port": 80 }] } }),
    )
    .await;
}
