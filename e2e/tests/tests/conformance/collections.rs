//! Lists, and the deletion of many objects at once.

use serde_json::{Value, json};

use crate::world::World;

async fn fill(w: &mut World, names: &[&str]) {
    let all = w.path("configmaps");
    for name in names {
        let tier = if *name < "c" { "front" } else { "back" };
        w.post(&all, json!({ "metadata": { "name": name, "labels": { "tier": tier, name.to_owned(): "" } } })).await;
    }
}

fn encoded(selector: &str) -> String {
    selector
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

pub(crate) async fn selectors(w: &mut World) {
    fill(w, &["a", "b", "c"]).await;
    for selector in [
        "tier=front",
        "tier==front",
        "tier!=front",
        "tier in (front,back)",
        "tier notin (front)",
        "a",
        "!a",
        "tier=front,a",
        "tier = front , b",
        "none",
        "tier=",
        "tier>5",
        "",
        "=x",
        "tier in",
        "tier in ()",
        "bad key!=x",
        "tier=bad value!",
        "tier notin (",
        ",",
        "tier,",
        "(a)",
    ] {
        w.get(&w.path(&format!("configmaps?labelSelector={}", encoded(selector))))
            .await;
    }
    for selector in [
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a",
        "metadata.name=none",
        "metadata.uid=x",
        "data.k=v",
        "metadata.name",
        "metadata.name=a,metadata.name=b",
        "metadata.name!=a,metadata.name!=b",
    ] {
        w.get(&w.path(&format!("configmaps?fieldSelector={}", encoded(selector))))
            .await;
    }
    let services = w.path("services");
    w.post(&services, json!({ "metadata": { "name": "lb" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } })).await;
    w.post(
        &services,
        json!({ "metadata": { "name": "plain" }, "spec": { "ports": [{ "port": 80 }] } }),
    )
    .await;
    for selector in [
        "spec.type=LoadBalancer",
        "spec.type!=LoadBalancer",
        "spec.clusterIP=None",
        "spec.nonsense=1",
    ] {
        w.get(&w.path(&format!("services?fieldSelector={}", encoded(selector))))
            .await;
    }
    w.post("/api/v1/nodes", json!({ "metadata": { "name": "n" } }))
        .await;
    for selector in [
        "metadata.name=n",
        "spec.unschedulable=false",
        "spec.unschedulable=true",
        "spec.providerID=x",
    ] {
        w.get(&format!(
            "/api/v1/nodes?fieldSelector={}",
            encoded(selector)
        ))
        .await;
    }
}

pub(crate) async fn pages(w: &mut World) {
    fill(w, &["a", "b", "c", "d", "e"]).await;
    let mut token = String::new();
    for _ in 0..3 {
        let page = w
            .get(&w.path(&format!("configmaps?limit=2&continue={token}")))
            .await;
        token = page.body["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        w.post(
            &w.path("configmaps"),
            json!({ "metadata": { "name": format!("b{}", w.steps.len()) } }),
        )
        .await;
    }
    assert_eq!(token, "");
    w.get(&w.path("configmaps?limit=2&labelSelector=tier"))
        .await;
    w.get(&w.path("configmaps?limit=100")).await;
    for query in [
        "limit=nonsense",
        "limit=-1",
        "continue=nonsense",
        "resourceVersion=nonsense",
        "resourceVersion=-1",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Nonsense",
        "timeoutSeconds=nonsense",
    ] {
        w.get(&w.path(&format!("configmaps?{query}"))).await;
    }
    let last: Value = w.get(&w.path("configmaps/e")).await.body;
    let version = last["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    for how in ["Exact", "NotOlderThan"] {
        w.get(&w.path(&format!(
            "configmaps?resourceVersion={version}&resourceVersionMatch={how}"
        )))
        .await;
    }
    w.get(&w.path(&format!("configmaps?resourceVersion={version}&limit=1")))
        .await;
}

pub(crate) async fn deletion(w: &mut World) {
    fill(w, &["a", "b", "c"]).await;
    w.patch(
        "merge",
        &w.path("configmaps/c"),
        json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
    )
    .await;
    w.delete(&w.path("configmaps?labelSelector=a")).await;
    w.delete(&w.path("configmaps?fieldSelector=metadata.name%3Dnone"))
        .await;
    w.delete_with(
        &w.path("configmaps?labelSelector=b"),
        json!({ "dryRun": ["All"] }),
    )
    .await;
    w.get(&w.path("configmaps?labelSelector=tier")).await;
    w.delete(&w.path("configmaps?labelSelector=tier")).await;
    w.get(&w.path("configmaps?labelSelector=tier")).await;
    let services = w.path("services");
    w.post(
        &services,
        json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } }),
    )
    .await;
    w.delete(&services).await;
    w.get(&services).await;
}
