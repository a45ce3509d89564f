//! Tables, metadata alone, discovery.

use serde_json::{Value, json};

use crate::world::World;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

async fn fill(w: &mut World) {
    let services = w.path("services");
    w.post(&services, json!({ "metadata": { "name": "lb", "labels": { "a": "b" } }, "spec": { "type": "LoadBalancer", "selector": { "app": "x", "b": "y" },
        "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 53, "protocol": "UDP" }] } })).await;
    w.post(&services, json!({ "metadata": { "name": "headless" }, "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } })).await;
    w.post(&services, json!({ "metadata": { "name": "external" }, "spec": { "type": "ExternalName", "externalName": "example.com" } })).await;
    w.post(&services, json!({ "metadata": { "name": "ips" }, "spec": { "externalIPs": ["198.51.100.1", "198.51.100.2"], "ports": [{ "port": 80 }] } })).await;
    w.post("/api/v1/nodes", json!({
        "metadata": { "name": "n", "labels": { "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "worker" } },
        "spec": { "unschedulable": true },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }, { "type": "ExternalIP", "address": "198.51.100.3" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": { "kubeletVersion": "v1.33.1", "osImage": "Debian", "kernelVersion": "6.1", "containerRuntimeVersion": "containerd://2" },
        },
    })).await;
    w.post("/api/v1/nodes", json!({ "metadata": { "name": "bare" } }))
        .await;
    w.post(
        &w.path("configmaps"),
        json!({ "metadata": { "name": "c" }, "data": { "a": "b" }, "binaryData": { "b": "AA==" } }),
    )
    .await;
    w.post(
        &w.path("secrets"),
        json!({ "metadata": { "name": "x" }, "stringData": { "a": "b" } }),
    )
    .await;
    w.post(
        &w.path("serviceaccounts"),
        json!({ "metadata": { "name": "x" } }),
    )
    .await;
    let leases = w.group_path("coordination.k8s.io/v1", "leases");
    w.post(
        &leases,
        json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "me" } }),
    )
    .await;
    let namespace = w.namespace.clone();
    w.post(&w.path("events"), json!({ "metadata": { "name": "e" }, "involvedObject": { "kind": "Service", "namespace": namespace, "name": "lb" },
        "reason": "Why", "message": "What ", "type": "Normal", "count": 3, "source": { "component": "ccm", "host": "h" },
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z" })).await;
}

pub(crate) async fn tables(w: &mut World) {
    fill(w).await;
    w.patch("merge", &w.path("services/lb/status"), json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }, { "ip": "198.51.100.4" }] } } })).await;
    for path in [
        "services",
        "configmaps",
        "secrets",
        "serviceaccounts",
        "events",
        "services/lb",
    ] {
        w.get_as(&w.path(path), TABLE).await;
    }
    for path in [
        "/api/v1/nodes",
        "/api/v1/nodes/n",
        "/api/v1/nodes?includeObject=None",
        "/api/v1/nodes?includeObject=Object",
        "/api/v1/namespaces/default",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dnone",
        "/api/v1/nodes/none",
    ] {
        w.get_as(path, TABLE).await;
    }
    w.get_as(&w.group_path("coordination.k8s.io/v1", "leases"), TABLE)
        .await;
    w.get_as(&w.group_path("events.k8s.io/v1", "events"), TABLE)
        .await;
    w.get_as(&w.path("services?limit=1"), TABLE).await;
    let mut watch = w
        .watch_as(&w.path("services?fieldSelector=metadata.name%3Dlb"), TABLE)
        .await;
    w.events(&mut watch, 1).await;
    w.patch(
        "merge",
        &w.path("services/lb"),
        json!({ "metadata": { "labels": { "c": "d" } } }),
    )
    .await;
    w.events(&mut watch, 1).await;
    w.delete(&w.path("services/headless")).await;
    w.patch(
        "merge",
        &w.path("services/external"),
        json!({ "metadata": { "finalizers": ["example.com/x"] } }),
    )
    .await;
    w.delete(&w.path("services/external")).await;
    w.get_as(&w.path("services/external"), TABLE).await;
    w.patch(
        "merge",
        "/api/v1/nodes/n/status",
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
    )
    .await;
    w.get_as("/api/v1/nodes/n", TABLE).await;
}

pub(crate) async fn partial(w: &mut World) {
    fill(w).await;
    w.get_as("/api/v1/nodes/n", METADATA).await;
    w.get_as(&w.path("services"), METADATA_LIST).await;
    w.get_as(&w.path("services?limit=1"), METADATA_LIST).await;
    w.get_as("/api/v1/nodes/none", METADATA).await;
    let mut watch = w
        .watch_as(
            &w.path("services?fieldSelector=metadata.name%3Dlb"),
            METADATA,
        )
        .await;
    w.events(&mut watch, 1).await;
    w.get_as(
        "/api/v1/nodes/n",
        "application/json;as=Nonsense;g=meta.k8s.io;v=v1",
    )
    .await;
    w.get_as("/api/v1/nodes/n", "text/plain").await;
    w.get_as("/api/v1/nodes/n", "*/*").await;
}

/// The kinds that kubesim serves, of those the real server lists.
fn kinds(list: Value, wanted: &[&str]) -> Value {
    let mut list = list;
    if let Some(all) = list["resources"].as_array_mut() {
        all.retain(|r| wanted.contains(&r["name"].as_str().unwrap_or_default()));
        all.sort_by_key(|r| r["name"].to_string());
        for resource in all {
            resource
                .as_object_mut()
                .unwrap()
                .remove("storageVersionHash");
        }
    }
    list
}

pub(crate) async fn discovery(w: &mut World) {
    w.reduced(
        "/api",
        "application/json",
        |versions| json!({ "kind": versions["kind"], "versions": versions["versions"] }),
    )
    .await;
    w.reduced("/api/v1", "application/json", |list| {
        kinds(
            list,
            &[
                "configmaps",
                "endpoints",
                "events",
                "namespaces",
                "namespaces/finalize",
                "namespaces/status",
                "nodes",
                "nodes/status",
                "pods",
                "pods/status",
                "secrets",
                "serviceaccounts",
                "services",
                "services/status",
            ],
        )
    })
    .await;
    for (path, names) in [
        ("/apis/coordination.k8s.io/v1", &["leases"][..]),
        ("/apis/events.k8s.io/v1", &["events"]),
        ("/apis/discovery.k8s.io/v1", &["endpointslices"]),
        ("/apis/authentication.k8s.io/v1", &["tokenreviews"]),
        (
            "/apis/authorization.k8s.io/v1",
            &["subjectaccessreviews", "selfsubjectaccessreviews"],
        ),
    ] {
        w.reduced(path, "application/json", |list| kinds(list, names))
            .await;
    }
    w.reduced("/apis", "application/json", |mut list| {
        let ours = [
            "coordination.k8s.io",
            "events.k8s.io",
            "discovery.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
        ];
        let groups = list["groups"].as_array_mut().unwrap();
        groups.retain(|g| ours.contains(&g["name"].as_str().unwrap_or_default()));
        groups.sort_by_key(|g| g["name"].to_string());
        list
    })
    .await;
    w.get("/apis/coordination.k8s.io").await;
    w.get("/apis/none.example.com/v1").await;
    w.get("/apis/none.example.com").await;
    let aggregated =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    w.reduced("/api", aggregated, |list| {
        let resources = list["items"][0]["versions"][0]["resources"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let wanted = ["nodes", "services", "configmaps", "events", "namespaces"];
        let mut found: Vec<Value> = resources
            .into_iter()
            .filter(|r| wanted.contains(&r["resource"].as_str().unwrap_or_default()))
            .collect();
        for resource in &mut found {
            // What pods and proxies need is not served.
            if let Some(all) = resource["subresources"].as_array_mut() {
                all.retain(|r| r["subresource"] != "proxy");
            }
        }
        found.sort_by_key(|r| r["resource"].to_string());
        json!({ "kind": list["kind"], "apiVersion": list["apiVersion"], "resources": found })
    })
    .await;
}
