//! The three formats of patches.

use http::Method;
use serde_json::{Value, json};

use crate::world::World;

const NODES: &str = "/api/v1/nodes";
const A: &str = "/api/v1/nodes/a";
const STATUS: &str = "/api/v1/nodes/a/status";

pub(crate) async fn by_type(w: &mut World) {
    w.post(NODES, json!({ "metadata": { "name": "a" }, "status": {
        "addresses": [{ "type": "InternalIP", "address": "1.1.1.1" }, { "type": "Hostname", "address": "h" }],
        "conditions": [{ "type": "Ready", "status": "False" }, { "type": "DiskPressure", "status": "False" }],
    } }))
    .await;
    for status in [
        json!({ "addresses": [{ "type": "InternalIP", "address": "2.2.2.2" }, { "type": "ExternalIP", "address": "3.3.3.3" }] }),
        json!({ "addresses": [{ "type": "Hostname", "$patch": "delete" }] }),
        json!({ "addresses": [{ "$patch": "replace" }, { "type": "InternalIP", "address": "4.4.4.4" },
            { "type": "InternalIP", "address": "5.5.5.5" }, { "type": "InternalDNS", "address": "d" }] }),
        json!({ "$setElementOrder/conditions": [{ "type": "DiskPressure" }, { "type": "Ready" }],
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Fine" }] }),
        json!({ "conditions": [{ "type": "NetworkUnavailable", "status": "False" }] }),
        json!({ "conditions": [{ "type": "Ready", "reason": null }] }),
        json!({ "addresses": null }),
        json!({ "addresses": [{ "address": "no type" }] }),
        json!({ "$patch": "explode" }),
        json!({ "conditions": [{ "$patch": "explode", "type": "Ready" }] }),
        json!({ "conditions": "text" }),
        json!({ "capacity": { "cpu": "4", "memory": "8Gi" }, "allocatable": { "cpu": "3" } }),
        json!({ "capacity": { "$patch": "replace", "cpu": "5" } }),
        json!({ "capacity": { "$patch": "delete" } }),
    ] {
        w.patch("strategic-merge", STATUS, json!({ "status": status }))
            .await;
    }
}

pub(crate) async fn directives(w: &mut World) {
    let path = w.path("services");
    let s = w.path("services/s");
    w.post(&path, json!({
        "metadata": { "name": "s", "finalizers": ["example.com/a", "example.com/b"], "labels": { "x": "1", "y": "2" } },
        "spec": { "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }, { "name": "c", "port": 82 }] },
    }))
    .await;
    for metadata in [
        json!({ "$setElementOrder/finalizers": ["example.com/a", "example.com/b", "example.com/c"], "finalizers": ["example.com/c"] }),
        json!({ "finalizers": ["example.com/a", "example.com/d"] }),
        json!({ "$setElementOrder/finalizers": ["example.com/d", "example.com/a"], "finalizers": [] }),
        json!({ "$deleteFromPrimitiveList/finalizers": ["example.com/a"], "$setElementOrder/finalizers": ["example.com/b", "example.com/c"] }),
        json!({ "$deleteFromPrimitiveList/finalizers": ["example.com/absent"] }),
        json!({ "finalizers": null }),
        json!({ "labels": { "$patch": "replace", "z": "3" } }),
        json!({ "labels": { "z": null, "n": null, "k": "4" } }),
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "11111111-1111-1111-1111-111111111111" }] }),
        json!({ "ownerReferences": [{ "uid": "11111111-1111-1111-1111-111111111111", "$patch": "delete" }] }),
    ] {
        w.patch("strategic-merge", &s, json!({ "metadata": metadata }))
            .await;
    }
    for spec in [
        json!({ "ports": [{ "port": 81, "targetPort": 8081 }] }),
        json!({ "$setElementOrder/ports": [{ "port": 82 }, { "port": 80 }], "ports": [{ "port": 81, "$patch": "delete" }] }),
        json!({ "ports": [{ "name": "d", "port": 83 }] }),
        json!({ "selector": { "app": "x" } }),
        json!({ "selector": { "app": null } }),
        json!({ "ports": [{ "$patch": "replace" }, { "port": 90, "protocol": "UDP" }] }),
        json!({ "ports": [{ "name": "no-port" }] }),
        json!({ "ports": null }),
    ] {
        w.patch("strategic-merge", &s, json!({ "spec": spec }))
            .await;
    }
}

pub(crate) async fn merge(w: &mut World) {
    let path = w.path("configmaps");
    let c = w.path("configmaps/c");
    w.post(&path, json!({ "metadata": { "name": "c", "labels": { "a": "1" } }, "data": { "x": "1", "y": "2" } })).await;
    for patch in [
        json!({ "data": { "x": null, "z": "3" } }),
        json!({ "data": null }),
        json!({ "metadata": { "labels": null, "annotations": { "k": "v" } } }),
        json!({ "metadata": { "annotations": { "k": null } } }),
        json!({ "metadata": { "creationTimestamp": null, "generation": 7, "namespace": null } }),
        json!({ "metadata": { "name": "other" } }),
        json!({ "metadata": { "namespace": "other" } }),
        json!({ "kind": "Secret" }),
        json!({ "apiVersion": "v2" }),
        json!({}),
        json!([]),
        json!({ "data": { "n": 1 } }),
        json!({ "data": "text" }),
        json!({ "metadata": { "labels": { "n": 1 } } }),
        json!({ "metadata": { "finalizers": "text" } }),
    ] {
        w.patch("merge", &c, patch).await;
    }
    w.patch("merge", &w.path("configmaps/none"), json!({}))
        .await;
    w.patch("strategic-merge", &w.path("services/none"), json!({}))
        .await;
}

pub(crate) async fn json(w: &mut World) {
    let path = w.path("configmaps");
    let c = w.path("configmaps/c");
    w.post(
        &path,
        json!({ "metadata": { "name": "c", "labels": { "a/b": "1" } }, "data": { "x": "1" } }),
    )
    .await;
    let op = |op: &str, path: &str, value: Value| json!({ "op": op, "path": path, "value": value });
    for operations in [
        json!([
            op("test", "/data/x", json!("1")),
            op("replace", "/data/x", json!("2"))
        ]),
        json!([
            op("replace", "/data/x", json!("3")),
            op("test", "/data/x", json!("1"))
        ]),
        json!([op("add", "/metadata/labels/c", json!("d"))]),
        json!([op("replace", "/metadata/labels/a~1b", json!("2"))]),
        json!([op("add", "/metadata/annotations", json!({ "k": "v" }))]),
        json!([op("add", "/metadata/finalizers/-", json!("example.com/a"))]),
        json!([op("add", "/metadata/finalizers", json!(["example.com/a"]))]),
        json!([op("add", "/metadata/finalizers/-", json!("example.com/b"))]),
        json!([{ "op": "remove", "path": "/metadata/finalizers" }]),
        json!([{ "op": "remove", "path": "/data/none" }]),
        json!([op("replace", "/data/none", json!("1"))]),
        json!([{ "op": "move", "from": "/data/x", "path": "/data/y" }]),
        json!([{ "op": "copy", "from": "/data/y", "path": "/data/z" }]),
        json!([op("test", "/data/none", json!("1"))]),
        json!([op("test", "/data/none", Value::Null)]),
        json!([op("explode", "/data/x", json!("1"))]),
        json!([]),
        json!({}),
    ] {
        w.patch("json", &c, operations).await;
    }
}

pub(crate) async fn refused(w: &mut World) {
    w.post(NODES, json!({ "metadata": { "name": "a" } })).await;
    for kind in ["merge", "json", "strategic-merge"] {
        for body in ["", "{", "null", "7", "\"text\"", "[]", "[1]"] {
            w.patch_text(kind, A, body).await;
        }
    }
    w.any(Method::PATCH, A, "application/json", "{}").await;
    w.any(Method::PATCH, A, "", "{}").await;
    w.any(Method::PATCH, NODES, "application/merge-patch+json", "{}")
        .await;
    w.any(Method::POST, NODES, "application/json", "").await;
    w.any(Method::POST, NODES, "application/json", "{").await;
    w.any(Method::POST, NODES, "application/json", "[]").await;
    w.any(Method::POST, NODES, "text/plain", "{}").await;
    w.any(Method::PUT, A, "application/json", "{}").await;
    w.any(
        Method::POST,
        NODES,
        "application/yaml",
        "metadata:\n  name: from-yaml\n",
    )
    .await;
    w.post(
        NODES,
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "b" } }),
    )
    .await;
    w.post(
        NODES,
        json!({ "apiVersion": "apps/v1", "kind": "Node", "metadata": { "name": "b" } }),
    )
    .await;
    w.post(
        NODES,
        json!({ "metadata": { "name": "b" }, "spec": { "noSuchField": 1 } }),
    )
    .await;
    w.any(
        Method::POST,
        "/api/v1/nodes?fieldValidation=Strict",
        "application/json",
        r#"{"metadata":{"name":"s"},"spec":{"noSuchField":1}}"#,
    )
    .await;
}
